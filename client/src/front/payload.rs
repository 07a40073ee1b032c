//! What goes over the cut, as bytes.

use candle_core::{Device, Tensor};
use selvedge_models::ModelError;
use selvedge_protocols::{LocalError, split::StepEncoding};

fn misunderstood() -> LocalError {
    ModelError::Description("what the coordinator sends is not of this step".into()).into()
}

/// A tensor's values.
pub(super) fn values(tensor: &Tensor) -> Result<Vec<f32>, LocalError> {
    let values = tensor.flatten_all().and_then(|flat| flat.to_vec1());
    Ok(values.map_err(ModelError::from)?)
}

/// Reads so many rows of this shape.
pub(super) fn read_rows(
    encoding: StepEncoding,
    payload: &[u8],
    rows: usize,
    shape: &[usize],
) -> Result<Tensor, LocalError> {
    let values = encoding.read(payload, rows, shape.iter().product());
    let values = values.ok_or_else(misunderstood)?;
    let shape = [&[rows], shape].concat();
    Ok(Tensor::from_vec(values, shape, &Device::Cpu).map_err(ModelError::from)?)
}

/// Writes 32-bit numbers.
pub(super) fn bytes(values: &[f32]) -> Vec<u8> {
    let mut bytes = Vec::new();
    StepEncoding::F32.write(values, values.len(), &mut bytes);
    bytes
}

/// Reads so many 32-bit numbers.
pub(super) fn read_f32(payload: &[u8], count: usize) -> Result<Vec<f32>, LocalError> {
    StepEncoding::F32.read(payload, 1, count).ok_or_else(misunderstood)
}
