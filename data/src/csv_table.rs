//! Reads a CSV table by the roles of its columns.

use std::io::Read;

use csv::{ReaderBuilder, StringRecord, Trim};

use crate::categories::Categories;
use crate::csv_source::{Categorical, ClassNames, Column, CsvTables};
use crate::dataset::MOST_CLASSES;
use crate::{DataError, TargetKind};

#[derive(Debug, Clone, Copy, PartialEq)]
enum Role {
    Number,
    Category,
    Label,
    Target,
    Group,
    Ignored,
}

/// The columns of a table, and the categories met or given in each of them.
#[derive(Debug)]
pub(crate) struct Columns {
    names: Vec<String>,
    roles: Vec<Role>,
    categories: Vec<Categories>,
}

/// The cells of a table's rows, by role.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    /// For each row, the input columns: a number, or the number of a category.
    inputs: Vec<f32>,
    pub(crate) labels: Vec<u32>,
    pub(crate) values: Vec<f32>,
    pub(crate) groups: Vec<u32>,
}

/// The most categories in a column: each of them is an input of its own.
const MOST_CATEGORIES: usize = 1024;

/// Categories that a setting gives.
fn given(key: &'static str, names: impl IntoIterator<Item = String>) -> Result<Categories, DataError> {
    Categories::given(names).map_err(|twice| DataError::Setting {
        key,
        value: format!("a list with {twice:?} twice"),
        range: "a list of names that differ",
    })
}

impl Columns {
    /// Reads the training table; categories that are not given are numbered as they are met.
    pub(crate) fn read(content: impl Read, settings: &CsvTables) -> Result<(Self, Rows), DataError> {
        let mut reader = reader(content, settings)?;
        let names = names(&mut reader, settings)?;
        let count = names.len();
        let mut columns = Self {
            names,
            roles: vec![Role::Number; count],
            categories: vec![Categories::default(); count],
        };
        columns.assign_roles(settings)?;
        let rows = columns.read_rows(reader)?;
        Ok((columns, rows))
    }

    /// Reads another table of the same columns; the categories stay as they are.
    pub(crate) fn read_more(&mut self, content: impl Read, settings: &CsvTables) -> Result<Rows, DataError> {
        let mut reader = reader(content, settings)?;
        let names = names(&mut reader, settings)?;
        if names != self.names {
            let (train, test) = (self.names.join(", "), names.join(", "));
            return Err(DataError::SplitDiffers {
                what: "columns",
                train,
                test,
            });
        }
        // Groups of test examples are nobody's business.
        self.roles
            .iter_mut()
            .filter(|role| **role == Role::Group)
            .for_each(|role| *role = Role::Ignored);
        self.read_rows(reader)
    }

    fn assign_roles(&mut self, settings: &CsvTables) -> Result<(), DataError> {
        let labels = settings.label.columns();
        let role = if settings.targets == TargetKind::Classes {
            Role::Label
        } else {
            Role::Target
        };
        if labels.is_empty() || (role == Role::Label && labels.len() > 1) {
            let range = "one column, or for multi-label targets and values a list of columns";
            return Err(DataError::Setting {
                key: "label",
                value: format!("{} columns", labels.len()),
                range,
            });
        }
        for label in labels {
            let column = self.assign(label, role)?;
            match &settings.classes {
                Some(ClassNames::Count(count)) if !(1..=MOST_CLASSES).contains(count) => {
                    let range = "between 1 and 1048576";
                    return Err(DataError::Setting {
                        key: "classes",
                        value: count.to_string(),
                        range,
                    });
                }
                Some(ClassNames::Count(count)) => {
                    self.categories[column] = given("classes", (0..*count).map(|label| label.to_string()))?;
                }
                Some(ClassNames::Names(names)) => self.categories[column] = given("classes", names.iter().cloned())?,
                None => {}
            }
        }
        for categorical in &settings.categorical {
            match categorical {
                Categorical::Learned(column) => self.assign(column, Role::Category)?,
                Categorical::Given { column, categories } => {
                    let column = self.assign(column, Role::Category)?;
                    self.categories[column] = given("categories", categories.iter().cloned())?;
                    column
                }
            };
        }
        for column in &settings.ignore {
            self.assign(column, Role::Ignored)?;
        }
        if let Some(column) = &settings.group {
            self.assign(column, Role::Group)?;
        }
        if !self
            .roles
            .iter()
            .any(|role| matches!(role, Role::Number | Role::Category))
        {
            return Err(DataError::Format("no column is left for the inputs".into()));
        }
        Ok(())
    }

    fn assign(&mut self, column: &Column, role: Role) -> Result<usize, DataError> {
        let found = match column {
            Column::Index(index) => Some(*index).filter(|&index| index < self.names.len()),
            Column::Name(name) => self.names.iter().position(|other| other == name),
        };
        let Some(index) = found else {
            let column = match column {
                Column::Index(index) => format!("{index} (counted from 0)"),
                Column::Name(name) => format!("`{name}`"),
            };
            let shown = self
                .names
                .iter()
                .take(20)
                .map(String::as_str)
                .collect::<Vec<_>>()
                .join(", ");
            let columns = if self.names.len() > 20 {
                format!("{shown}, …")
            } else {
                shown
            };
            return Err(DataError::NoSuchColumn { column, columns });
        };
        if self.roles[index] != Role::Number {
            return Err(DataError::Format(format!(
                "column `{}` is given two roles",
                self.names[index]
            )));
        }
        self.roles[index] = role;
        Ok(index)
    }

    fn read_rows(&mut self, mut reader: csv::Reader<impl Read>) -> Result<Rows, DataError> {
        let mut rows = Rows::default();
        let mut record = StringRecord::new();
        while reader
            .read_record(&mut record)
            .map_err(|problem| DataError::Format(problem.to_string()))?
        {
            for (column, cell) in record.iter().enumerate() {
                self.read_cell(column, cell, &mut rows).map_err(|problem| {
                    let line = record.position().map_or(0, csv::Position::line);
                    DataError::Cell {
                        line,
                        column: self.names[column].clone(),
                        problem,
                    }
                })?;
            }
        }
        Ok(rows)
    }

    fn read_cell(&mut self, column: usize, cell: &str, rows: &mut Rows) -> Result<(), String> {
        let role = self.roles[column];
        if role == Role::Ignored {
            return Ok(());
        }
        if cell.is_empty() {
            return Err("the cell is empty; fill it in, or leave the row or (with `ignore`) the column out".into());
        }
        let categories = &mut self.categories[column];
        let unknown = |what| format!("`{cell}` is not among the {what}");
        match role {
            Role::Number => rows.inputs.push(number(cell)?),
            Role::Target => rows.values.push(number(cell)?),
            Role::Label => rows
                .labels
                .push(categories.number(cell).ok_or_else(|| unknown("classes"))?),
            Role::Group => rows
                .groups
                .push(categories.number(cell).ok_or_else(|| unknown("groups"))?),
            Role::Category => {
                rows.inputs
                    .push(categories.number(cell).ok_or_else(|| unknown("column's categories"))? as f32);
                if categories.len() > MOST_CATEGORIES {
                    return Err(format!(
                        "more than {MOST_CATEGORIES} categories; leave the column out with `ignore`"
                    ));
                }
            }
            Role::Ignored => {}
        }
        Ok(())
    }

    /// Fixes the categories that were learned, sorted, and renumbers the rows.
    pub(crate) fn fix(&mut self, rows: &mut Rows) {
        let inputs = self.input_columns();
        for (column, categories) in self
            .categories
            .iter_mut()
            .enumerate()
            .filter(|(_, each)| !each.is_fixed())
        {
            let renumbered = categories.fix();
            match self.roles[column] {
                Role::Label => rows
                    .labels
                    .iter_mut()
                    .for_each(|label| *label = renumbered[*label as usize]),
                Role::Group => rows
                    .groups
                    .iter_mut()
                    .for_each(|group| *group = renumbered[*group as usize]),
                Role::Category => {
                    let place = inputs.iter().position(|&input| input == column).unwrap_or(0);
                    let cells = rows.inputs.iter_mut().skip(place).step_by(inputs.len());
                    cells.for_each(|cell| *cell = renumbered[*cell as usize] as f32);
                }
                Role::Number | Role::Target | Role::Ignored => {}
            }
        }
    }

    fn input_columns(&self) -> Vec<usize> {
        let is_input = |column: &usize| matches!(self.roles[*column], Role::Number | Role::Category);
        (0..self.roles.len()).filter(is_input).collect()
    }

    /// Mean and standard deviation of each input column that is a number (0 and 1 where it does not vary or is
    /// a category).
    pub(crate) fn scales(&self, rows: &Rows) -> Vec<(f64, f64)> {
        let inputs = self.input_columns();
        let scale = |(place, &column): (usize, &usize)| {
            let cells = || {
                rows.inputs
                    .iter()
                    .skip(place)
                    .step_by(inputs.len())
                    .map(|&cell| f64::from(cell))
            };
            let count = cells().count().max(1) as f64;
            let mean = cells().sum::<f64>() / count;
            let deviation = (cells().map(|cell| (cell - mean).powi(2)).sum::<f64>() / count).sqrt();
            match self.roles[column] {
                Role::Number => (mean, if deviation > 0.0 { deviation } else { 1.0 }),
                _ => (0.0, 1.0),
            }
        };
        inputs.iter().enumerate().map(scale).collect()
    }

    /// The inputs of all rows, categories one-hot, and the number of inputs of a row.
    pub(crate) fn inputs(&self, rows: &Rows, scales: &[(f64, f64)]) -> (Vec<f32>, usize) {
        let columns = self.input_columns();
        let inputs_of = |column: usize| match self.roles[column] {
            Role::Category => self.categories[column].len(),
            _ => 1,
        };
        let width = columns.iter().map(|&column| inputs_of(column)).sum();
        let mut inputs = Vec::with_capacity(rows.inputs.len() / columns.len() * width);
        for row in rows.inputs.chunks_exact(columns.len()) {
            for (place, (&cell, &column)) in row.iter().zip(&columns).enumerate() {
                match self.roles[column] {
                    Role::Category => {
                        inputs.extend((0..inputs_of(column)).map(|category| f32::from(category == cell as usize)));
                    }
                    _ => inputs.push(
                        scales
                            .get(place)
                            .map_or(cell, |(mean, deviation)| ((f64::from(cell) - mean) / deviation) as f32),
                    ),
                }
            }
        }
        (inputs, width)
    }

    /// The number of classes.
    pub(crate) fn classes(&self) -> usize {
        let label = self.roles.iter().position(|&role| role == Role::Label);
        label.map_or(0, |column| self.categories[column].len())
    }

    /// The groups' names, if there is a column of groups.
    pub(crate) fn groups(&self) -> Option<Vec<String>> {
        let group = self.roles.iter().position(|&role| role == Role::Group);
        group.map(|column| self.categories[column].names())
    }
}

fn reader<R: Read>(content: R, settings: &CsvTables) -> Result<csv::Reader<R>, DataError> {
    let delimiter = u8::try_from(settings.delimiter)
        .ok()
        .filter(u8::is_ascii)
        .ok_or_else(|| {
            let (value, range) = (settings.delimiter.to_string(), "one ASCII character");
            DataError::Setting {
                key: "delimiter",
                value,
                range,
            }
        })?;
    let mut builder = ReaderBuilder::new();
    Ok(builder
        .has_headers(settings.header)
        .delimiter(delimiter)
        .trim(Trim::All)
        .from_reader(content))
}

/// The columns' names; their indices where the table has no header.
fn names(reader: &mut csv::Reader<impl Read>, settings: &CsvTables) -> Result<Vec<String>, DataError> {
    let first = reader
        .headers()
        .map_err(|problem| DataError::Format(problem.to_string()))?;
    if first.is_empty() {
        return Err(DataError::Format("the table is empty".into()));
    }
    Ok(if settings.header {
        let names: Vec<String> = first.iter().map(String::from).collect();
        for (index, name) in names.iter().enumerate() {
            if let Some(before) = names[..index].iter().position(|before| before == name) {
                let twice = format!("columns {before} and {index} (counted from 0) are both named `{name}`");
                return Err(DataError::Format(twice));
            }
        }
        names
    } else {
        (0..first.len()).map(|index| index.to_string()).collect()
    })
}

fn number(cell: &str) -> Result<f32, String> {
    let number = cell.parse::<f32>().map_err(|_| {
        format!("`{cell}` is not a number; if the column holds categories, name it under `categorical`")
    })?;
    if number.is_finite() {
        Ok(number)
    } else {
        Err(format!("`{cell}` is not a finite number"))
    }
}
