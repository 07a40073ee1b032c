//! An update on its way: sealed by the client, opened and checked by the coordinator.

use std::collections::BTreeMap;

use selvedge_models::{Layout, SubModel, Weights, all_finite};
use selvedge_words::{Rejection, choice::Choice};
use serde::{Deserialize, Serialize};

use crate::{
    Memory, Metrics, Occasion, Shape, Vectors,
    algorithm::Algorithm,
    context::{LONGEST_METRIC, MOST_METRICS},
    filters::{self, Filter, Reference},
    local::{Trained, Update},
    sections::{Encoding, Section, SectionHeader, Values},
};

/// What a client says about its training, beside the numbers themselves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrainingReport {
    /// How many examples the client holds for training.
    pub examples: u64,
    /// How many steps it made.
    pub steps: u64,
    /// The mean training loss; `None` when there was no step.
    pub loss: Option<f64>,
    /// What its components have measured, by component and name.
    pub metrics: BTreeMap<String, f64>,
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

/// Whether filters are applied to a vector of this shape: to those that have the parameters' own.
fn is_filtered(shape: Shape) -> bool {
    shape == Shape::Parameters
}

/// The sections that an update of this part of the model must have, for this algorithm and these filters.
pub fn expected_sections(
    part: &SubModel,
    algorithm: &dyn Algorithm,
    filters: &[Choice<dyn Filter>],
) -> Vec<SectionHeader> {
    let encoder = filters.iter().find(|filter| filter.encoding().is_some());
    let section = |name: &str, shape: Shape| {
        let values = shape.length(part) as u64;
        let encoder = encoder.filter(|_| is_filtered(shape));
        SectionHeader {
            name: name.into(),
            encoding: encoder.and_then(|encoder| encoder.encoding()).unwrap_or(Encoding::F32),
            values: encoder.map_or(values, |encoder| encoder.encoded(values)),
        }
    };
    let mut sections = vec![section(PARAMETERS, Shape::Parameters)];
    if part.buffers.count() > 0 {
        sections.push(section(BUFFERS, Shape::Buffers));
    }
    let mut vectors = algorithm.update_vectors().to_vec();
    vectors.sort_unstable_by_key(|(name, _)| *name);
    sections.extend(vectors.into_iter().map(|(name, shape)| section(name, shape)));
    sections
}

impl TrainingReport {
    /// What there is to say about training.
    pub fn of(trained: &Trained, metrics: Metrics) -> Self {
        let Trained {
            examples, steps, loss, ..
        } = *trained;
        Self {
            examples,
            steps,
            loss,
            metrics: metrics.own,
        }
    }
}

impl SealedUpdate {
    /// Puts an update on its way. `global` is the part of the model that was broadcast; what filters keep is in `memory`.
    pub fn seal(
        update: Update,
        filters: &[Choice<dyn Filter>],
        global: &Weights,
        memory: &mut Memory,
        occasion: &Occasion<'_>,
        mut metrics: Metrics,
    ) -> Self {
        let Update { trained, vectors } = update;
        let mut filtered = |name: &str, values: Vec<f32>, reference: Reference<'_>| {
            let values = Values::F32(values);
            let values = filters::apply(filters, name, values, reference, memory, occasion, &mut metrics);
            Section {
                name: name.into(),
                values,
            }
        };
        let Trained {
            weights: Weights { parameters, buffers },
            examples,
            steps,
            loss,
        } = trained;
        let mut sections = vec![filtered(PARAMETERS, parameters, Reference::Model(&global.parameters))];
        if !buffers.is_empty() {
            sections.push(Section::new(BUFFERS, buffers));
        }
        for (name, vector) in vectors {
            sections.push(match is_filtered(vector.shape) {
                true => {
                    let length = vector.values.len();
                    filtered(&name, vector.values, Reference::Zeros(length))
                }
                false => Section::new(name, vector.values),
            });
        }
        let report = TrainingReport {
            examples,
            steps,
            loss,
            metrics: metrics.own,
        };
        Self { report, sections }
    }

    /// Checks an update of this part of the model against what was assigned, and undoes the filters.
    ///
    /// # Errors
    /// When anything about it is not as assigned, or a number is not finite.
    pub fn open(
        self,
        expected: &[SectionHeader],
        algorithm: &dyn Algorithm,
        filters: &[Choice<dyn Filter>],
        global: &Weights,
        occasion: &Occasion<'_>,
        metrics: &mut Metrics,
    ) -> Result<Update, Rejection> {
        check_report(&self.report)?;
        check_headers(expected, &self.sections.iter().map(Section::header).collect::<Vec<_>>())?;
        let not_finite = |name: &str| Rejection::NotFinite(name.into());
        if let Some(section) = self.sections.iter().find(|section| !section.values.is_finite()) {
            return Err(not_finite(&section.name));
        }
        let mut undone = |name: &str, values: Values, reference: Reference<'_>| match filters::undo(
            filters, name, values, reference, occasion, metrics,
        )? {
            Values::F32(values) if filters.is_empty() || all_finite(&values) => Ok(values),
            Values::F32(_) => Err(not_finite(name)),
            other => Err(Rejection::WrongShape(format!("{name} ends as {:?}", other.encoding()))),
        };
        let mut weights = Weights::default();
        let mut vectors = Vectors::new();
        for Section { name, values } in self.sections {
            let named = algorithm.update_vectors().iter().find(|(known, _)| *known == name);
            match (name.as_str(), named, values) {
                (PARAMETERS, _, values) => {
                    weights.parameters = undone(&name, values, Reference::Model(&global.parameters))?;
                }
                (BUFFERS, _, Values::F32(values)) => weights.buffers = values,
                (_, Some((_, shape)), values) if is_filtered(*shape) => {
                    let values = undone(&name, values, Reference::Zeros(global.parameters.len()))?;
                    vectors.insert(name, *shape, values);
                }
                (_, Some((_, shape)), Values::F32(values)) => vectors.insert(name, *shape, values),
                (_, _, other) => {
                    return Err(Rejection::WrongShape(format!("{name} is {:?}", other.encoding())));
                }
            }
        }
        let TrainingReport {
            examples, steps, loss, ..
        } = self.report;
        Ok(Update {
            trained: Trained {
                weights,
                examples,
                steps,
                loss,
            },
            vectors,
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
    let TrainingReport {
        examples,
        steps,
        loss,
        ref metrics,
    } = *report;
    if examples >= MOST_EXAMPLES {
        return Err(Rejection::ImpossibleReport(format!(
            "{examples} examples; at most {MOST_EXAMPLES} count"
        )));
    }
    if examples == 0 && steps > 0 {
        return Err(Rejection::ImpossibleReport(format!("{steps} steps on no examples")));
    }
    if metrics.len() > MOST_METRICS {
        let count = metrics.len();
        return Err(Rejection::ImpossibleReport(format!(
            "{count} metrics; at most {MOST_METRICS} count"
        )));
    }
    if metrics.keys().any(|name| name.chars().count() > LONGEST_METRIC) {
        let message = format!("a metric's name is longer than {LONGEST_METRIC} characters");
        return Err(Rejection::ImpossibleReport(message));
    }
    // What the server measures of a client is not the client's to say.
    let is_its_own = |name: &String| name.starts_with("algorithm.") || name.starts_with("filters.");
    if let Some(name) = metrics.keys().find(|name| !is_its_own(name)) {
        let name: String = name.escape_debug().collect();
        return Err(Rejection::ImpossibleReport(format!(
            "{name} is not measured on clients"
        )));
    }
    if !metrics.values().all(|value| value.is_finite()) {
        return Err(Rejection::NotFinite("a metric".into()));
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
