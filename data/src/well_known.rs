//! MNIST and Fashion-MNIST: the files they consist of, and where those are looked for.

use std::path::{Path, PathBuf};

use crate::DataError;

/// A well-known set of four IDX files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WellKnownSet {
    /// Handwritten digits (LeCun, Cortes, Burges 1998): 60,000 and 10,000 images of 28 × 28, 10 classes.
    Mnist,
    /// Articles of clothing (Xiao, Rasul, Vollgraf 2017): the same sizes as MNIST.
    FashionMnist,
}

impl WellKnownSet {
    /// The set's name: in a description, for `selvedge data fetch`, and of its folder under `datasets/`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mnist => "mnist",
            Self::FashionMnist => "fashion-mnist",
        }
    }

    /// Where the set lies unless a description says otherwise, and where it is fetched to: `datasets/NAME`.
    pub fn default_folder(self) -> PathBuf {
        Path::new("datasets").join(self.name())
    }

    /// Files of the set in `folder`, plain or with `.gz`.
    pub(crate) fn files<const N: usize>(self, folder: &Path, names: [&str; N]) -> Result<[PathBuf; N], DataError> {
        let mut files = names.map(|name| folder.join(name));
        for file in &mut files {
            if !file.is_file() {
                let plain = file.clone();
                file.as_mut_os_string().push(".gz");
                if !file.is_file() {
                    return Err(DataError::SetMissing {
                        file: plain,
                        set: self.name(),
                    });
                }
            }
        }
        Ok(files)
    }
}

/// The usual names of the files to train on, images and labels, without `.gz`.
pub(crate) const TRAIN: [&str; 2] = ["train-images-idx3-ubyte", "train-labels-idx1-ubyte"];
/// The usual names of the files to evaluate on.
pub(crate) const TEST: [&str; 2] = ["t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"];
