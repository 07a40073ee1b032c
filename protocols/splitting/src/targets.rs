//! How targets travel with smashed data: as 32-bit numbers, whole ones for classes.

use selvedge_models::{BatchTargets, all_finite};

/// Targets that have come.
#[derive(Clone, Debug, PartialEq)]
pub enum Received {
    /// A class for each example.
    Classes(Vec<u32>),
    /// As many values for each example as the model has outputs.
    Values(Vec<f32>),
}

impl Received {
    /// They, as a loss takes them.
    pub fn as_targets(&self) -> BatchTargets<'_> {
        match self {
            Self::Classes(classes) => BatchTargets::Classes(classes),
            Self::Values(values) => BatchTargets::Values(values),
        }
    }
}

/// Writes targets.
pub fn write(targets: BatchTargets<'_>, bytes: &mut Vec<u8>) {
    match targets {
        BatchTargets::Classes(classes) => bytes.extend(classes.iter().flat_map(|class| class.to_le_bytes())),
        BatchTargets::Values(values) => bytes.extend(values.iter().flat_map(|value| value.to_le_bytes())),
    }
}

/// Reads classes below `outputs`; `None` when one is not.
pub fn read_classes(bytes: &[u8], outputs: usize) -> Option<Received> {
    let classes: Vec<u32> = bytes
        .as_chunks()
        .0
        .iter()
        .map(|bytes| u32::from_le_bytes(*bytes))
        .collect();
    let known = classes.iter().all(|class| (*class as usize) < outputs);
    known.then_some(Received::Classes(classes))
}

/// Reads values; `None` when one is not finite.
pub fn read_values(bytes: &[u8]) -> Option<Received> {
    let values: Vec<f32> = bytes
        .as_chunks()
        .0
        .iter()
        .map(|bytes| f32::from_le_bytes(*bytes))
        .collect();
    all_finite(&values).then_some(Received::Values(values))
}
