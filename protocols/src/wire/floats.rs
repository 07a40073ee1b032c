//! 32-bit floats to and from their little-endian bytes.
//!
//! Both directions compile to one pass of plain memory copying on little-endian machines, and are
//! right on the others. They need no alignment of the bytes.

use super::WireError;

const WIDTH: usize = size_of::<f32>();

/// Lays floats out as bytes.
pub fn bytes_from_floats(floats: &[f32]) -> Vec<u8> {
    let mut bytes = vec![0; floats.len() * WIDTH];
    for (place, float) in bytes.as_chunks_mut::<WIDTH>().0.iter_mut().zip(floats) {
        *place = float.to_le_bytes();
    }
    bytes
}

/// Reads bytes as floats. NaN and infinity pass: their meaning is the reader's business.
///
/// # Errors
/// [`WireError::NotFloats`] when the length is not a multiple of four.
pub fn floats_from_bytes(bytes: &[u8]) -> Result<Vec<f32>, WireError> {
    match bytes.as_chunks::<WIDTH>() {
        (floats, []) => Ok(floats.iter().map(|float| f32::from_le_bytes(*float)).collect()),
        _ => Err(WireError::NotFloats { bytes: bytes.len() }),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_bit_pattern_survives(bits in proptest::collection::vec(any::<u32>(), 0..100)) {
            let floats: Vec<f32> = bits.iter().map(|bits| f32::from_bits(*bits)).collect();
            let back = floats_from_bytes(&bytes_from_floats(&floats)).unwrap();
            prop_assert_eq!(back.iter().map(|float| float.to_bits()).collect::<Vec<_>>(), bits);
        }
    }

    #[test]
    fn a_fraction_of_a_float_is_an_error() {
        assert!(matches!(
            floats_from_bytes(&[0; 7]),
            Err(WireError::NotFloats { bytes: 7 })
        ));
    }

    #[test]
    fn the_bytes_are_little_endian() {
        assert_eq!(bytes_from_floats(&[1.0]), [0, 0, 0x80, 0x3f]);
    }
}
