//! All values of a model, flat: what is drawn, saved, hashed, sent and averaged.

use std::{collections::BTreeSet, fs, path::Path};

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use serde::{Deserialize, Serialize};

use crate::{
    description::ModelDescription,
    error::ModelError,
    layout::{Entry, Initial, Layout},
};

/// All values of a model, in the order of its [`Layout`].
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Weights {
    /// What is trained.
    pub parameters: Vec<f32>,
    /// What is kept but not trained.
    pub buffers: Vec<f32>,
}

impl Weights {
    /// Values for the start of training, drawn in the layout's order.
    ///
    /// # Errors
    /// When the description is not in order.
    pub fn initial(description: &ModelDescription, rng: &mut ChaCha8Rng) -> Result<Self, ModelError> {
        Ok(Self::drawn(&description.layout()?, rng))
    }

    /// Whether no value is infinite or not a number.
    pub fn is_finite(&self) -> bool {
        all_finite(&self.parameters) && all_finite(&self.buffers)
    }

    /// [`initial`](Self::initial) for a layout.
    pub fn drawn(layout: &Layout, rng: &mut ChaCha8Rng) -> Self {
        let mut draw = |entries: &[Entry], count: usize| {
            let mut values = Vec::with_capacity(count);
            for entry in entries {
                extend(&mut values, entry, rng);
            }
            values
        };
        Self {
            parameters: draw(&layout.parameters, layout.parameter_count()),
            buffers: draw(&layout.buffers, layout.buffer_count()),
        }
    }

    /// All values 0.
    pub fn zeros(layout: &Layout) -> Self {
        Self {
            parameters: vec![0.0; layout.parameter_count()],
            buffers: vec![0.0; layout.buffer_count()],
        }
    }

    /// Whether there are as many values as the layout says.
    ///
    /// # Errors
    /// When there are not.
    pub fn check(&self, layout: &Layout) -> Result<(), ModelError> {
        let check = |what, expected, given| match expected == given {
            true => Ok(()),
            false => Err(ModelError::Weights { what, expected, given }),
        };
        check("parameters", layout.parameter_count(), self.parameters.len())?;
        check("buffers", layout.buffer_count(), self.buffers.len())
    }

    /// The weights of front and back of a model that was cut; `front` is the front's layout.
    ///
    /// # Errors
    /// When there are fewer values than the front has.
    pub fn cut(&self, front: &Layout) -> Result<(Self, Self), ModelError> {
        let split = |what, values: &[f32], at: usize| match values.split_at_checked(at) {
            Some((front, back)) => Ok((front.to_vec(), back.to_vec())),
            None => Err(ModelError::Weights {
                what,
                expected: at,
                given: values.len(),
            }),
        };
        let (parameters, back_parameters) = split("parameters", &self.parameters, front.parameter_count())?;
        let (buffers, back_buffers) = split("buffers", &self.buffers, front.buffer_count())?;
        let back = Self {
            parameters: back_parameters,
            buffers: back_buffers,
        };
        Ok((Self { parameters, buffers }, back))
    }

    /// The weights of a whole model from those of its front and back.
    pub fn join(front: &Self, back: &Self) -> Self {
        Self {
            parameters: [front.parameters.as_slice(), &back.parameters].concat(),
            buffers: [front.buffers.as_slice(), &back.buffers].concat(),
        }
    }

    /// The BLAKE3 hash, in hexadecimal, of the parameters' and then the buffers' little-endian bytes.
    pub fn blake3(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        for values in [&self.parameters, &self.buffers] {
            for block in values.chunks(1 << 14) {
                hasher.update(&bytes(block));
            }
        }
        hasher.finalize().to_hex().to_string()
    }

    /// The weights as a safetensors file, each tensor under its name in the layout.
    ///
    /// # Errors
    /// When the weights are not of this layout.
    pub fn to_safetensors(&self, layout: &Layout) -> Result<Vec<u8>, ModelError> {
        self.check(layout)?;
        let tensors = tensors(layout, self)
            .map(|(entry, values)| (entry, bytes(&values[entry.range()])))
            .collect::<Vec<_>>();
        let views = tensors.iter().map(|(entry, bytes)| {
            let view = TensorView::new(Dtype::F32, entry.shape.clone(), bytes)?;
            Ok((entry.name.as_str(), view))
        });
        let views: Vec<_> = views.collect::<Result<_, _>>().map_err(in_file)?;
        safetensors::serialize(views, None).map_err(in_file)
    }

    /// The weights in the bytes of a safetensors file, which must hold the layout's tensors and no others.
    ///
    /// # Errors
    /// When the bytes are no safetensors file, or it holds other tensors; the error names one.
    pub fn from_safetensors(file: &[u8], layout: &Layout) -> Result<Self, ModelError> {
        let file = SafeTensors::deserialize(file).map_err(in_file)?;
        let known: BTreeSet<&str> = layout
            .parameters
            .iter()
            .chain(&layout.buffers)
            .map(|entry| entry.name.as_str())
            .collect();
        if let Some(name) = file.names().iter().find(|name| !known.contains(**name)) {
            return Err(ModelError::File(format!("the model has no tensor `{name}`")));
        }
        let wrong = |text| Err(ModelError::File(text));
        let read = |entries: &[Entry], count: usize| -> Result<Vec<f32>, ModelError> {
            let mut values = Vec::with_capacity(count);
            for Entry { name, shape, .. } in entries {
                let Ok(view) = file.tensor(name) else {
                    return wrong(format!("it lacks the tensor `{name}`"));
                };
                if view.dtype() != Dtype::F32 || view.shape() != shape {
                    let (given, of) = (view.shape(), view.dtype());
                    return wrong(format!(
                        "`{name}` is {given:?} of {of:?}; the model needs {shape:?} of F32"
                    ));
                }
                let numbers = view.data().as_chunks::<4>().0;
                values.extend(numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)));
            }
            Ok(values)
        };
        Ok(Self {
            parameters: read(&layout.parameters, layout.parameter_count())?,
            buffers: read(&layout.buffers, layout.buffer_count())?,
        })
    }

    /// Writes a safetensors file: aside first, then renamed, so that it is whole or not there.
    ///
    /// # Errors
    /// When the weights are not of this layout, or the file cannot be written; then nothing is left beside it.
    pub fn save(&self, layout: &Layout, path: &Path) -> Result<(), ModelError> {
        let file = self.to_safetensors(layout)?;
        let mut aside = path.as_os_str().to_owned();
        aside.push(".part");
        let write = || {
            let mut handle = fs::File::create(&aside)?;
            std::io::Write::write_all(&mut handle, &file)?;
            handle.sync_all()?;
            fs::rename(&aside, path)
        };
        write().map_err(|source| {
            // What matters is why it could not be written; the file may not even be there.
            let _ = fs::remove_file(&aside);
            let path = path.to_path_buf();
            ModelError::Io { path, source }
        })
    }

    /// Reads a safetensors file.
    ///
    /// # Errors
    /// When the file cannot be read, or does not hold this layout's tensors.
    pub fn load(path: &Path, layout: &Layout) -> Result<Self, ModelError> {
        let file = fs::read(path).map_err(|source| ModelError::Io {
            path: path.to_path_buf(),
            source,
        })?;
        Self::from_safetensors(&file, layout)
    }
}

/// Whether none of the values is infinite or not a number.
pub fn all_finite(values: &[f32]) -> bool {
    // Without an end at the first that is not, a block fills vectors.
    let is_finite = |block: &[f32]| block.iter().fold(true, |so_far, value| so_far & value.is_finite());
    values.chunks(1024).all(is_finite)
}

fn tensors<'a>(layout: &'a Layout, weights: &'a Weights) -> impl Iterator<Item = (&'a Entry, &'a [f32])> {
    let parameters = layout
        .parameters
        .iter()
        .map(|entry| (entry, weights.parameters.as_slice()));
    let buffers = layout.buffers.iter().map(|entry| (entry, weights.buffers.as_slice()));
    parameters.chain(buffers)
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn in_file(error: safetensors::SafeTensorError) -> ModelError {
    ModelError::File(error.to_string())
}

fn extend(values: &mut Vec<f32>, entry: &Entry, rng: &mut ChaCha8Rng) {
    let count = entry.size();
    match entry.initial {
        Initial::Constant(value) => values.extend(std::iter::repeat_n(value, count)),
        Initial::Uniform { low, high } => {
            values.extend((0..count).map(|_| rng.random_range(low..=high)));
        }
        Initial::Normal { mean, deviation } => {
            let mut draw = || mean + deviation * rng.sample::<f32, _>(StandardNormal);
            values.extend((0..count).map(|_| draw()));
        }
    }
}
