//! What the coordinator evaluates.

use std::fmt;

use selvedge_protocols::Width;

/// What the coordinator itself evaluates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trial {
    /// The whole model on the test set.
    Whole,
    /// A sub-model of this width on the test set.
    SubModel(Width),
    /// The whole model on training examples: only a simulation has any.
    OnTraining,
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole => f.write_str("the model"),
            Self::SubModel(width) => write!(f, "the sub-model of width {width}"),
            Self::OnTraining => f.write_str("the model on training examples"),
        }
    }
}

impl Trial {
    /// The width of what is evaluated.
    pub fn width(self) -> Width {
        match self {
            Self::SubModel(width) => width,
            Self::Whole | Self::OnTraining => Width::WHOLE,
        }
    }
}
