//! What is kept as bytes: safetensors in a seal that has the round for its number.

use std::collections::HashMap;

use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use selvedge_models::SubModel;
use selvedge_protocols::{
    ClientName, Memory, Shape,
    update::{BUFFERS, PARAMETERS},
};
use selvedge_storage::{seal, unseal};

use crate::Front;

/// The key of the metadata that says whose it is.
const CLIENT: &str = "client";
/// How shapes are written that do not follow the model's.
const FREE: &str = "free";

/// What a file can hold.
pub(super) struct Expected<'a> {
    pub(super) client: &'a ClientName,
    pub(super) whole: &'a SubModel,
    pub(super) front: Option<&'a SubModel>,
}

/// Seals what is kept of a round; what cannot be written is for a person.
pub(super) fn encode(client: &ClientName, round: u32, memory: &Memory) -> Result<Vec<u8>, String> {
    let vectors = memory.iter().flat_map(|(component, vectors)| {
        vectors.iter().map(move |(name, vector)| {
            let shape = match vector.shape {
                Shape::Parameters => PARAMETERS,
                Shape::Buffers => BUFFERS,
                Shape::Free(_) => FREE,
            };
            let bytes: Vec<u8> = vector.values.iter().flat_map(|value| value.to_le_bytes()).collect();
            (format!("{component}/{shape}/{name}"), bytes, vector.values.len())
        })
    });
    let vectors: Vec<_> = vectors.collect();
    let views = vectors
        .iter()
        .map(|(name, bytes, length)| TensorView::new(Dtype::F32, vec![*length], bytes).map(|view| (name, view)));
    let views: Vec<_> = views.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
    let metadata = HashMap::from([(CLIENT.to_owned(), client.to_string())]);
    let contents = safetensors::serialize(views, Some(metadata)).map_err(|error| error.to_string())?;
    Ok(seal(round.into(), &contents))
}

/// The round, and what is kept of it; what is wrong is for a person.
pub(super) fn decode(sealed: &[u8], expected: &Expected<'_>) -> Result<(u32, Memory), String> {
    let (round, bytes) = unseal(sealed)?;
    let round = round.try_into().map_err(|_| format!("{round} is no round"))?;
    let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(|error| error.to_string())?;
    let client = metadata.metadata().as_ref().and_then(|metadata| metadata.get(CLIENT));
    if client.is_none_or(|client| client != expected.client.as_str()) {
        return Err("it is not this client's".into());
    }
    let tensors = SafeTensors::deserialize(bytes).map_err(|error| error.to_string())?;
    let mut memory = Memory::new();
    for (place, tensor) in tensors.iter() {
        let values = tensor.data().as_chunks().0.iter();
        let values: Vec<f32> = values.map(|&value| f32::from_le_bytes(value)).collect();
        let mut parts = place.splitn(3, '/');
        let (Some(component), Some(shape), Some(name)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(format!("{place} is not the name of anything that is kept"));
        };
        let shape = match shape {
            PARAMETERS => Shape::Parameters,
            BUFFERS => Shape::Buffers,
            FREE => Shape::Free(values.len()),
            _ => return Err(format!("{place} has no shape that is known")),
        };
        let length = shape.length(expected.whole);
        if tensor.dtype() != Dtype::F32 || tensor.shape() != [length] {
            let (dtype, shape) = (tensor.dtype(), tensor.shape());
            return Err(format!("{place} is {dtype:?} of {shape:?}, not {length} × F32"));
        }
        if !values.iter().all(|value| value.is_finite()) {
            return Err(format!("{place} holds a value that is not finite"));
        }
        memory.of_mut(component).insert(name, shape, values);
    }
    match expected.front.is_none_or(|front| Front::is_whole(&memory, front)) {
        true => Ok((round, memory)),
        false => Err("a part of the front is missing".into()),
    }
}
