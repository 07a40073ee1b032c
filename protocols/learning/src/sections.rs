//! How tensors travel: named sections of raw little-endian values, each on a 64-byte boundary of one blob.

use half::bf16;
use selvedge_models::all_finite;
use serde::{Deserialize, Serialize};

/// Sections begin at multiples of this many bytes.
const ALIGNMENT: usize = 64;

/// How a section's values are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Encoding {
    /// 32-bit floating-point numbers.
    F32,
    /// Upper halves of 32-bit floating-point numbers.
    Bf16,
    /// Bytes in a filter's own form.
    Bytes,
}

impl Encoding {
    fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
            Self::Bytes => 1,
        }
    }
}

/// Values in one of the encodings.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// 32-bit numbers.
    F32(Vec<f32>),
    /// 16-bit numbers.
    Bf16(Vec<bf16>),
    /// Bytes in a filter's own form.
    Bytes(Vec<u8>),
}

impl Values {
    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Self::F32(values) => values.len(),
            Self::Bf16(values) => values.len(),
            Self::Bytes(bytes) => bytes.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How they are written.
    pub fn encoding(&self) -> Encoding {
        match self {
            Self::F32(_) => Encoding::F32,
            Self::Bf16(_) => Encoding::Bf16,
            Self::Bytes(_) => Encoding::Bytes,
        }
    }

    /// Whether none is infinite or not a number.
    pub fn is_finite(&self) -> bool {
        match self {
            Self::F32(values) => all_finite(values),
            Self::Bf16(values) => values.iter().all(|value| value.is_finite()),
            // What they stand for is looked at when they are read.
            Self::Bytes(_) => true,
        }
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::F32(values) => bytes.extend(values.iter().flat_map(|value| value.to_le_bytes())),
            Self::Bf16(values) => bytes.extend(values.iter().flat_map(|value| value.to_le_bytes())),
            Self::Bytes(values) => bytes.extend(values),
        }
    }

    fn read(encoding: Encoding, bytes: &[u8]) -> Self {
        match encoding {
            Encoding::F32 => Self::F32(
                bytes
                    .as_chunks()
                    .0
                    .iter()
                    .map(|&chunk| f32::from_le_bytes(chunk))
                    .collect(),
            ),
            Encoding::Bf16 => Self::Bf16(
                bytes
                    .as_chunks()
                    .0
                    .iter()
                    .map(|&chunk| bf16::from_le_bytes(chunk))
                    .collect(),
            ),
            Encoding::Bytes => Self::Bytes(bytes.to_vec()),
        }
    }
}

/// What a section is, without its values: sent ahead, and what a receiver expects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SectionHeader {
    /// What the values are: `parameters`, `buffers`, or the name of an algorithm's vector.
    pub name: String,
    /// How they are written.
    pub encoding: Encoding,
    /// How many there are.
    pub values: u64,
}

/// A named section.
#[derive(Clone, Debug, PartialEq)]
pub struct Section {
    /// What the values are.
    pub name: String,
    /// The values.
    pub values: Values,
}

impl Section {
    /// A section of 32-bit numbers.
    pub fn new(name: impl Into<String>, values: Vec<f32>) -> Self {
        Self {
            name: name.into(),
            values: Values::F32(values),
        }
    }

    /// What the section is, without its values.
    pub fn header(&self) -> SectionHeader {
        SectionHeader {
            name: self.name.clone(),
            encoding: self.values.encoding(),
            values: self.values.len() as u64,
        }
    }
}

/// How many bytes the sections take in a blob; `None` when that is more than can be counted.
pub fn packed_bytes(headers: &[SectionHeader]) -> Option<u64> {
    headers.iter().try_fold(0u64, |bytes, header| {
        let start = bytes.checked_next_multiple_of(ALIGNMENT as u64)?;
        start.checked_add(header.values.checked_mul(header.encoding.bytes() as u64)?)
    })
}

/// The sections as one blob.
pub fn pack(sections: &[Section]) -> Vec<u8> {
    let headers: Vec<_> = sections.iter().map(Section::header).collect();
    let mut bytes = Vec::with_capacity(packed_bytes(&headers).unwrap_or(0) as usize);
    for section in sections {
        bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
        section.values.write(&mut bytes);
    }
    bytes
}

/// Sections of 32-bit numbers as one blob, each written as [`F32`](Encoding::F32) or [`Bf16`](Encoding::Bf16).
pub fn pack_numbers<'a>(sections: impl Iterator<Item = (Encoding, &'a [f32])>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (encoding, values) in sections {
        let start = bytes.len().next_multiple_of(ALIGNMENT);
        bytes.reserve_exact(start - bytes.len() + values.len() * encoding.bytes());
        bytes.resize(start, 0);
        match encoding {
            Encoding::Bf16 => bytes.extend(values.iter().flat_map(|value| bf16::from_f32(*value).to_le_bytes())),
            _ => bytes.extend(values.iter().flat_map(|value| value.to_le_bytes())),
        }
    }
    bytes
}

/// The sections that `headers` announce; `None` when the blob does not have exactly their size.
pub fn unpack(headers: &[SectionHeader], bytes: &[u8]) -> Option<Vec<Section>> {
    if packed_bytes(headers)? != bytes.len() as u64 {
        return None;
    }
    let mut at = 0usize;
    let sections = headers.iter().map(|header| {
        let start = at.next_multiple_of(ALIGNMENT);
        at = start + header.values as usize * header.encoding.bytes();
        let values = Values::read(header.encoding, bytes.get(start..at)?);
        Some(Section {
            name: header.name.clone(),
            values,
        })
    });
    sections.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn section() -> impl Strategy<Value = Section> {
        let f32s = prop::collection::vec(any::<f32>().prop_filter("comparable", |v| !v.is_nan()), 0..40);
        let f32s = f32s.prop_map(|values| (false, values));
        let bf16s = prop::collection::vec(-1e6f32..1e6, 0..40).prop_map(|values| (true, values));
        prop_oneof![f32s, bf16s].prop_map(|(narrow, values)| Section {
            name: "section".into(),
            values: match narrow {
                true => Values::Bf16(values.into_iter().map(bf16::from_f32).collect()),
                false => Values::F32(values),
            },
        })
    }

    proptest! {
        #[test]
        fn unpacking_gives_back_what_was_packed(sections in prop::collection::vec(section(), 0..5)) {
            let headers: Vec<_> = sections.iter().map(Section::header).collect();
            prop_assert_eq!(unpack(&headers, &pack(&sections)), Some(sections));
        }

        #[test]
        fn a_byte_too_few_or_too_many_is_refused(sections in prop::collection::vec(section(), 1..5)) {
            let headers: Vec<_> = sections.iter().map(Section::header).collect();
            let mut bytes = pack(&sections);
            bytes.push(0);
            prop_assert_eq!(unpack(&headers, &bytes), None);
            if bytes.len() > 1 {
                prop_assert_eq!(unpack(&headers, &bytes[..bytes.len() - 2]), None);
            }
        }
    }

    #[test]
    fn sizes_that_cannot_be_counted_are_refused() {
        let header = SectionHeader {
            name: "huge".into(),
            encoding: Encoding::F32,
            values: u64::MAX,
        };
        assert_eq!(packed_bytes(std::slice::from_ref(&header)), None);
        assert_eq!(unpack(&[header], &[]), None);
    }
}
