//! What can be wrong with a model, said so that a person can mend it.

/// An error about a model, its weights, or what it is given.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// A layer cannot stand where the description puts it.
    #[error("model layer {layer} ({kind}): {problem}")]
    Layer {
        /// The layer's place: its index, or a path such as `4.layers.2` inside a residual layer.
        layer: String,
        /// The layer's `kind`.
        kind: &'static str,
        /// What is wrong with it.
        problem: Box<LayerProblem>,
    },
    /// The description as a whole is wrong.
    #[error("model: {0}")]
    Description(String),
    /// The model would have more parameters than [`LARGEST_MODEL`](crate::LARGEST_MODEL).
    #[error("model: it would have {parameters} parameters; the largest allowed is {largest}")]
    TooManyParameters {
        /// Parameters (and buffers) counted up to the layer that went over the limit.
        parameters: usize,
        /// The limit.
        largest: usize,
    },
    /// The input's shape is not the model's.
    #[error("the model takes a batch of {expected:?}, but was given a tensor of shape {given:?}")]
    Input {
        /// One example's shape; the batch comes before it.
        expected: Vec<usize>,
        /// The whole shape given, batch included.
        given: Vec<usize>,
    },
    /// The gradient handed to `backward` is not shaped like the output of the last `forward`.
    #[error("backward was given a gradient of {given} values, but the last forward gave {expected}")]
    OutputGradient {
        /// Values in the last output.
        expected: usize,
        /// Values in the gradient.
        given: usize,
    },
    /// `backward` without a `forward` before it.
    #[error("backward needs a forward before it")]
    NothingToDifferentiate,
    /// Candle found no way from a module's output to one of its variables.
    #[error(
        "no gradient reaches the module's variable `{name}`: an operation after it, such as candle-nn's LayerNorm, \
         cannot be differentiated by candle, or it is not used"
    )]
    NotDifferentiated {
        /// The variable.
        name: String,
    },
    /// A batch without examples.
    #[error("the batch is empty")]
    EmptyBatch,
    /// A batch so large that its activations could not be counted.
    #[error("a batch of {examples} examples is too large for this model")]
    BatchTooLarge {
        /// Examples in the batch.
        examples: usize,
    },
    /// An embedding met a token outside its vocabulary.
    #[error("token {token} is not in the embedding's vocabulary (0 to {last})")]
    Token {
        /// The value met.
        token: f32,
        /// The largest token.
        last: usize,
    },
    /// Units to keep that make no sub-model.
    #[error("sub-model: {0}")]
    Thinning(String),
    /// Weights of another model.
    #[error("the model has {expected} {what}, but was given {given}")]
    Weights {
        /// `parameters` or `buffers`.
        what: &'static str,
        /// The model's count.
        expected: usize,
        /// The count given.
        given: usize,
    },
    /// Targets that do not fit the outputs.
    #[error("targets: {0}")]
    Targets(String),
    /// An optimiser's setting out of its range.
    #[error("optimiser: `{setting}` is {value}; it must be {needs}")]
    Optimiser {
        /// The setting's key.
        setting: &'static str,
        /// Its value.
        value: f64,
        /// The values allowed.
        needs: &'static str,
    },
    /// A file of weights that is not this model's.
    #[error("weights file: {0}")]
    File(String),
    /// Reading or writing a file failed.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: std::path::PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Candle refused an operation.
    #[error(transparent)]
    Candle(#[from] candle_core::Error),
}

/// What can be wrong with one layer.
#[derive(Debug, thiserror::Error)]
pub enum LayerProblem {
    /// The layer before gives a shape this layer cannot take.
    #[error("it needs {needs}, but is given {given:?}")]
    Input {
        /// The shape it needs, in words.
        needs: String,
        /// The shape of one example as it arrives.
        given: Vec<usize>,
    },
    /// A setting out of its range.
    #[error("`{setting}` is {value}; it must be {needs}")]
    Setting {
        /// The setting's key.
        setting: &'static str,
        /// Its value.
        value: String,
        /// The values allowed.
        needs: String,
    },
    /// A convolution's or pool's window is larger than the padded image.
    #[error("a window of {kernel}x{kernel} does not fit {given:?} with padding {padding}")]
    Window {
        /// The window's side.
        kernel: usize,
        /// Padding on each side.
        padding: usize,
        /// The shape of one example as it arrives.
        given: Vec<usize>,
    },
    /// The two ways through a residual layer end in different shapes.
    #[error("its layers give {layers:?}, but its shortcut gives {shortcut:?}")]
    Shortcut {
        /// Shape after `layers`.
        layers: Vec<usize>,
        /// Shape after `shortcut` (or the input's, without one).
        shortcut: Vec<usize>,
    },
    /// A candle-nn module cannot be built, or cannot run on what it is given.
    #[error("the module does not run on {given:?}: {error}")]
    Module {
        /// The shape of one example as it arrives.
        given: Vec<usize>,
        /// What candle said.
        error: candle_core::Error,
    },
    /// A candle-nn module that keeps running statistics.
    #[error("its variable `{name}` is a running statistic, which would be trained; use another norm")]
    RunningStatistics {
        /// The variable.
        name: String,
    },
    /// A layer of a crate outside that keeps something it does not train.
    #[error("it keeps `{name}`, which is not trained; a layer from outside cannot")]
    Buffer {
        /// What it keeps.
        name: String,
    },
    /// A layer of a crate outside that gives nothing.
    #[error("it gives {given:?}; it must give at least one side, none of them 0")]
    Output {
        /// The shape of one example that it gives.
        given: Vec<usize>,
    },
    /// Values for one example beyond [`LARGEST_VALUE`](crate::LARGEST_VALUE).
    #[error("{what} would hold more than {largest} values for each example")]
    TooLarge {
        /// What would be too large.
        what: &'static str,
        /// The limit.
        largest: usize,
    },
}

impl LayerProblem {
    /// A setting out of its range.
    pub fn setting(setting: &'static str, value: impl ToString, needs: impl Into<String>) -> Self {
        let (value, needs) = (value.to_string(), needs.into());
        Self::Setting { setting, value, needs }
    }

    /// An input of a shape that the layer cannot take.
    pub fn input(needs: impl Into<String>, given: &[usize]) -> Self {
        let (needs, given) = (needs.into(), given.to_vec());
        Self::Input { needs, given }
    }
}
