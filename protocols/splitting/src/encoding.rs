//! How smashed data and cut gradients travel.

use half::bf16;
use selvedge_models::all_finite;
use serde::{Deserialize, Serialize};

/// How smashed data and cut gradients travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StepEncoding {
    /// As 32-bit numbers: nothing is lost.
    #[default]
    F32,
    /// As the upper halves of 32-bit numbers.
    Bf16,
    /// As 8 bits each, in 255 equal steps from the least to the greatest value of an example, which travel as 32-bit
    /// numbers before it.
    Int8,
}

/// The steps from the least value to the greatest.
const LEVELS: f32 = 255.0;

impl StepEncoding {
    /// Bytes of `rows` rows of `values` values each; `None` when they cannot be counted.
    pub fn bytes(self, rows: usize, values: usize) -> Option<usize> {
        let row = match self {
            Self::F32 => values.checked_mul(4)?,
            Self::Bf16 => values.checked_mul(2)?,
            Self::Int8 => values.checked_add(8)?,
        };
        rows.checked_mul(row)
    }

    /// Writes rows of `row` values each.
    pub fn write(self, values: &[f32], row: usize, bytes: &mut Vec<u8>) {
        match self {
            Self::F32 => bytes.extend(values.iter().flat_map(|value| value.to_le_bytes())),
            Self::Bf16 => bytes.extend(values.iter().flat_map(|value| bf16::from_f32(*value).to_le_bytes())),
            Self::Int8 => values.chunks(row.max(1)).for_each(|row| write_levels(row, bytes)),
        }
    }

    /// Reads `rows` rows of `row` values each; `None` when the bytes are not as many, or a value is not finite.
    pub fn read(self, bytes: &[u8], rows: usize, row: usize) -> Option<Vec<f32>> {
        if self.bytes(rows, row) != Some(bytes.len()) {
            return None;
        }
        let values: Vec<f32> = match self {
            Self::F32 => bytes
                .as_chunks()
                .0
                .iter()
                .map(|bytes| f32::from_le_bytes(*bytes))
                .collect(),
            Self::Bf16 => {
                let values = bytes.as_chunks().0.iter();
                values.map(|bytes| bf16::from_le_bytes(*bytes).to_f32()).collect()
            }
            Self::Int8 => bytes.chunks(row + 8).flat_map(read_levels).collect(),
        };
        all_finite(&values).then_some(values)
    }
}

fn write_levels(row: &[f32], bytes: &mut Vec<u8>) {
    let least = row.iter().copied().fold(f32::INFINITY, f32::min);
    let greatest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    // In two halves: a difference of the largest numbers is none.
    let mut step = greatest / LEVELS - least / LEVELS;
    if !all_finite(row) {
        // What is read is then not finite either.
        step = f32::NAN;
    }
    bytes.extend(least.to_le_bytes());
    bytes.extend(step.to_le_bytes());
    let level = |value: &f32| match step > 0.0 {
        // A conversion to an integer stays within its range.
        true => ((value - least) / step).round() as u8,
        false => 0,
    };
    bytes.extend(row.iter().map(level));
}

fn read_levels(row: &[u8]) -> impl Iterator<Item = f32> {
    let (ends, levels) = row.split_at_checked(8).unwrap_or((&[], row));
    let mut ends = ends.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
    let (least, step) = (ends.next().unwrap_or(0.0), ends.next().unwrap_or(0.0));
    levels.iter().map(move |level| least + f32::from(*level) * step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn reading_gives_back_what_was_written_as_nearly_as_the_encoding_can(
            values in prop::collection::vec(-1e3f32..1e3, 12),
        ) {
            for encoding in [StepEncoding::F32, StepEncoding::Bf16, StepEncoding::Int8] {
                let mut bytes = Vec::new();
                encoding.write(&values, 4, &mut bytes);
                prop_assert_eq!(Some(bytes.len()), encoding.bytes(3, 4));
                let read = encoding.read(&bytes, 3, 4).unwrap();
                for (row, read) in values.chunks(4).zip(read.chunks(4)) {
                    let least = row.iter().copied().fold(f32::INFINITY, f32::min);
                    let greatest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                    for (value, read) in row.iter().zip(read) {
                        let most = match encoding {
                            StepEncoding::F32 => 0.0,
                            StepEncoding::Bf16 => value.abs() / 256.0,
                            StepEncoding::Int8 => (greatest - least) / LEVELS * 0.501 + 1e-4,
                        };
                        prop_assert!((value - read).abs() <= most, "{encoding:?}: {value} became {read}");
                    }
                }
            }
        }

        #[test]
        fn arbitrary_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            for encoding in [StepEncoding::F32, StepEncoding::Bf16, StepEncoding::Int8] {
                if let Some(values) = encoding.read(&bytes, 3, 4) {
                    prop_assert!(values.len() == 12 && values.iter().all(|value| value.is_finite()));
                }
            }
        }
    }

    #[test]
    fn what_is_not_finite_is_refused_and_equal_values_stay_as_they_are() {
        for encoding in [StepEncoding::F32, StepEncoding::Bf16, StepEncoding::Int8] {
            let mut bytes = Vec::new();
            encoding.write(&[0.0, f32::NAN, 1.0, f32::INFINITY], 4, &mut bytes);
            assert_eq!(encoding.read(&bytes, 1, 4), None);
            let mut bytes = Vec::new();
            encoding.write(&[0.5; 4], 4, &mut bytes);
            assert_eq!(encoding.read(&bytes, 1, 4), Some(vec![0.5; 4]));
        }
        let mut extremes = Vec::new();
        StepEncoding::Int8.write(&[f32::MIN, f32::MAX], 2, &mut extremes);
        assert!(
            StepEncoding::Int8
                .read(&extremes, 1, 2)
                .is_none_or(|values| values[0] == f32::MIN)
        );
    }
}
