//! An update on its way: sealed by the client, opened and checked by the coordinator.

use rand_chacha::ChaCha8Rng;
use selvedge_models::{Layout, SubModel, Weights, all_finite};
use serde::{Deserialize, Serialize};

use crate::{
    Rejection,
    algorithm::{Algorithm, Trained, Update},
    filters::{self, FilterDescription},
    sections::{Encoding, Section, SectionHeader, Values},
};

/// What a client says about its training, beside the numbers themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrainingReport {
    /// How many examples the client holds for training.
    pub examples: u64,
    /// How many steps it made.
    pub steps: u64,
    /// The mean training loss; `None` when there was no step.
    pub loss: Option<f64>,
}

/// An update as it travels: what was trained, after the filters' client halves.
#[derive(Clone, Debug, PartialEq)]
pub struct SealedUpdate {
    /// What the client says about its training.
    pub report: TrainingReport,
    /// `parameters`, `buffers` (if the model has any), then the algorithm's vectors in the order of their names.
    pub sections: Vec<Section>,
}

/// The name of the section of a model's parameters.
pub const PARAMETERS: &str = "parameters";
/// The name of the section of a model's running statistics.
pub const BUFFERS: &str = "buffers";

/// Examples whose statistics are taken together, when a model is calibrated.
pub const CALIBRATION_BATCH: usize = 100;

/// The sections that the statistics of a model's batch norms travel as.
pub fn expected_statistics(layout: &Layout) -> Vec<SectionHeader> {
    vec![SectionHeader {
        name: BUFFERS.into(),
        encoding: Encoding::F32,
        values: layout.buffer_count() as u64,
    }]
}

/// The sections that an update of this part of the model must have, for this algorithm and these filters.
pub fn expected_sections(
    part: &SubModel,
    algorithm: &dyn Algorithm,
    filters: &[FilterDescription],
) -> Vec<SectionHeader> {
    let (parameters, buffers) = (part.parameters.count() as u64, part.buffers.count() as u64);
    let section = |name: &str, encoding, values| SectionHeader {
        name: name.into(),
        encoding,
        values,
    };
    let encoding = filters
        .iter()
        .find_map(|filter| filter.encoding())
        .unwrap_or(Encoding::F32);
    let mut sections = vec![section(PARAMETERS, encoding, parameters)];
    if buffers > 0 {
        sections.push(section(BUFFERS, Encoding::F32, buffers));
    }
    let mut vectors = algorithm.update_vectors().to_vec();
    vectors.sort_unstable();
    sections.extend(vectors.into_iter().map(|name| section(name, Encoding::F32, parameters)));
    sections
}

impl SealedUpdate {
    /// What an update says about its training.
    pub fn report(update: &Update) -> TrainingReport {
        let Trained {
            examples, steps, loss, ..
        } = update.trained;
        TrainingReport { examples, steps, loss }
    }

    /// Puts an update on its way.
    pub fn seal(update: Update, filters: &[FilterDescription], global: &Weights, random: &mut ChaCha8Rng) -> Self {
        let Update {
            trained:
                Trained {
                    weights,
                    examples,
                    steps,
                    loss,
                },
            vectors,
        } = update;
        let parameters = filters::apply(filters, Values::F32(weights.parameters), global, random);
        let mut sections = vec![Section {
            name: PARAMETERS.into(),
            values: parameters,
        }];
        if !weights.buffers.is_empty() {
            sections.push(Section::new(BUFFERS, weights.buffers));
        }
        sections.extend(vectors.into_iter().map(|(name, values)| Section::new(name, values)));
        Self {
            report: TrainingReport { examples, steps, loss },
            sections,
        }
    }

    /// Checks an update against what was assigned, and undoes the filters.
    ///
    /// # Errors
    /// When anything about it is not as assigned, or a number is not finite.
    pub fn open(
        self,
        expected: &[SectionHeader],
        filters: &[FilterDescription],
        global: &Weights,
    ) -> Result<Update, Rejection> {
        check_report(&self.report)?;
        check_headers(expected, &self.sections.iter().map(Section::header).collect::<Vec<_>>())?;
        if let Some(section) = self.sections.iter().find(|section| !section.values.is_finite()) {
            return Err(Rejection::NotFinite(section.name.clone()));
        }
        let mut weights = Weights {
            parameters: Vec::new(),
            buffers: Vec::new(),
        };
        let mut update_vectors = crate::algorithm::Vectors::new();
        for Section { name, values } in self.sections {
            match (name.as_str(), values) {
                (PARAMETERS, values) => match filters::undo(filters, values, global)? {
                    Values::F32(values) => weights.parameters = values,
                    other => {
                        return Err(Rejection::WrongShape(format!(
                            "parameters end as {:?}",
                            other.encoding()
                        )));
                    }
                },
                (BUFFERS, Values::F32(values)) => weights.buffers = values,
                (_, Values::F32(values)) => drop(update_vectors.insert(name, values)),
                (_, other) => {
                    return Err(Rejection::WrongShape(format!("{name} is {:?}", other.encoding())));
                }
            }
        }
        if !filters.is_empty() && !all_finite(&weights.parameters) {
            return Err(Rejection::NotFinite(PARAMETERS.into()));
        }
        let TrainingReport { examples, steps, loss } = self.report;
        Ok(Update {
            trained: Trained {
                weights,
                examples,
                steps,
                loss,
            },
            vectors: update_vectors,
        })
    }
}

/// An example count whose product with a 24-bit mantissa is exact in double precision.
pub const MOST_EXAMPLES: u64 = 1 << 29;

/// Checks a client's report, before its update is fetched.
///
/// # Errors
/// When it cannot be true.
pub fn check_report(report: &TrainingReport) -> Result<(), Rejection> {
    let TrainingReport { examples, steps, loss } = *report;
    if examples >= MOST_EXAMPLES {
        return Err(Rejection::ImpossibleReport(format!(
            "{examples} examples; at most {MOST_EXAMPLES} count"
        )));
    }
    if examples == 0 && steps > 0 {
        return Err(Rejection::ImpossibleReport(format!("{steps} steps on no examples")));
    }
    match loss {
        Some(loss) if !loss.is_finite() => Err(Rejection::NotFinite("the training loss".into())),
        _ => Ok(()),
    }
}

/// Checks what an update announces, before it is fetched.
///
/// # Errors
/// When a section is missing, unexpected, or of another length or encoding than assigned.
pub fn check_headers(expected: &[SectionHeader], announced: &[SectionHeader]) -> Result<(), Rejection> {
    // A peer's words are cut short: they go into records and answers.
    let describe = |header: &SectionHeader| {
        let name: String = header.name.escape_debug().take(64).collect();
        format!("{name} {} × {:?}", header.values, header.encoding)
    };
    for (expected, announced) in expected.iter().zip(announced) {
        if expected != announced {
            return Err(Rejection::WrongShape(format!(
                "{}; assigned {}",
                describe(announced),
                describe(expected)
            )));
        }
    }
    if expected.len() != announced.len() {
        let count = (announced.len(), expected.len());
        return Err(Rejection::WrongShape(format!(
            "{} sections; assigned {}",
            count.0, count.1
        )));
    }
    Ok(())
}
