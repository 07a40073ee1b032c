//! The final model, for a client that wants to keep it.

use std::path::Path;

use selvedge_models::{Layout, Weights};
use selvedge_protocols::{
    message::FINAL_MODEL_WITHIN,
    wire::{BlobReference, Link, Partial, pull},
};
use tokio::time::timeout;

use super::AgentError;

/// Fetches the final model and writes it. Says how many bytes it has.
pub(super) async fn keep(link: &Link, blob: BlobReference, layout: &Layout, file: &Path) -> Result<u64, AgentError> {
    let failed = |error: &dyn std::fmt::Display| AgentError::FinalModel(error.to_string());
    let mut partial = Partial::new(blob, largest(layout)).map_err(|error| failed(&error))?;
    let pulled = timeout(FINAL_MODEL_WITHIN, pull(link, &mut partial)).await;
    let late = |_| {
        let seconds = FINAL_MODEL_WITHIN.as_secs();
        AgentError::FinalModel(format!("it did not come within {seconds} s"))
    };
    let bytes = pulled.map_err(late)?.map_err(|error| failed(&error))?;
    let weights = Weights::from_safetensors(&bytes, layout).map_err(|error| failed(&error))?;
    weights.save(layout, file).map_err(|error| failed(&error))?;
    Ok(bytes.len() as u64)
}

/// The most bytes that a safetensors file with this layout has: its values, and of each tensor the name, the shape and where
/// it is.
fn largest(layout: &Layout) -> u64 {
    let values = layout.parameter_count() + layout.buffer_count();
    let tensors = layout.parameters.iter().chain(&layout.buffers);
    let header: usize = tensors
        .map(|tensor| tensor.name.len() + 128 + 24 * tensor.shape.len())
        .sum();
    (4 * values + header + 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use selvedge_protocols::{Description, description::EXAMPLE};

    #[test]
    fn a_file_is_never_larger_than_what_is_allowed_and_not_by_much_smaller() {
        let layout = Description::parse(EXAMPLE, "the example", &[])
            .unwrap()
            .model
            .layout()
            .unwrap();
        let file = Weights::zeros(&layout).to_safetensors(&layout).unwrap().len() as u64;
        assert!(
            (file..file + 4096).contains(&largest(&layout)),
            "{file} and {}",
            largest(&layout)
        );
    }
}
