//! What the coordinator evaluates.

use std::fmt;

use selvedge_protocols::{ClientName, Width};

/// What the coordinator itself evaluates.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trial {
    /// The whole model on the test set.
    Whole,
    /// A sub-model of this width on the test set.
    SubModel(Width),
    /// The whole model on training examples: only a simulation has any.
    OnTraining,
    /// The front that this client keeps, with the back, on the test set.
    Stitched(ClientName),
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole => f.write_str("the model"),
            Self::SubModel(width) => write!(f, "the sub-model of width {width}"),
            Self::OnTraining => f.write_str("the model on training examples"),
            Self::Stitched(client) => write!(f, "the model with the front of {client}"),
        }
    }
}

impl Trial {
    /// The width of what is evaluated.
    pub fn width(&self) -> Width {
        match self {
            Self::SubModel(width) => *width,
            Self::Whole | Self::OnTraining | Self::Stitched(_) => Width::WHOLE,
        }
    }

    /// Whether it is evaluated class by class.
    pub fn is_by_class(&self) -> bool {
        matches!(self, Self::Stitched(_))
    }
}
