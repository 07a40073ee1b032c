//! What training, calibration or evaluation gave.

use bytes::Bytes;
use selvedge_protocols::{
    Memory,
    message::Evaluation,
    sections::{Section, SectionHeader, pack},
    update::{SealedUpdate, TrainingReport},
};

/// What training, calibration or evaluation gave.
pub(super) enum Outcome {
    Trained {
        update: PackedUpdate,
        /// What the algorithm is to keep, of training.
        kept: Option<Memory>,
    },
    Evaluated(Evaluation),
}

/// An update as it travels.
pub(super) struct PackedUpdate {
    pub(super) report: TrainingReport,
    pub(super) sections: Vec<SectionHeader>,
    pub(super) bytes: Bytes,
}

impl Outcome {
    pub(super) fn trained(sealed: &SealedUpdate, kept: Option<Memory>) -> Self {
        let update = PackedUpdate {
            report: sealed.report.clone(),
            sections: sealed.sections.iter().map(Section::header).collect(),
            bytes: pack(&sealed.sections).into(),
        };
        Self::Trained { update, kept }
    }
}
