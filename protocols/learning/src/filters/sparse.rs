//! Some of the values of a vector, with their places: four bytes each for both.

use selvedge_words::Rejection;

/// How many bytes so many values take.
pub(super) fn bytes_of(values: u64) -> u64 {
    8 * values
}

/// The values at some places of a vector, which ascend.
pub(super) fn write(places: &[u32], values: impl Iterator<Item = f32>) -> Vec<u8> {
    let mut bytes: Vec<u8> = places.iter().flat_map(|place| place.to_le_bytes()).collect();
    bytes.extend(values.flat_map(f32::to_le_bytes));
    bytes
}

/// Adds the values to those at their places.
///
/// # Errors
/// When places do not ascend, so that one could count twice, or are not there.
pub(super) fn add(bytes: &[u8], vector: &mut [f32]) -> Result<(), Rejection> {
    let (places, values) = bytes.split_at(bytes.len() / 2);
    let (places, values) = (places.as_chunks().0.iter(), values.as_chunks().0.iter());
    let mut next = 0;
    for (place, value) in places.map(|place| u32::from_le_bytes(*place)).zip(values) {
        let known = vector.get_mut(place as usize).filter(|_| place >= next);
        let wrong = || Rejection::WrongShape("places of sparse values do not ascend or are not there".into());
        *known.ok_or_else(wrong)? += f32::from_le_bytes(*value);
        next = place.saturating_add(1);
    }
    Ok(())
}
