//! The data set that the first run uses without a network: the first 10,000 training and the first 2,000 test
//! images of Fashion-MNIST (Xiao, Rasul, Vollgraf 2017, arXiv:1708.07747), MIT licence (`built-in/LICENSE`).

use flate2::read::GzDecoder;

use crate::source::image_classes;
use crate::{DataError, Dataset, idx};

pub(crate) fn train() -> Result<Dataset, DataError> {
    image_classes(
        read(include_bytes!("../built-in/train-images-idx3-ubyte.gz"))?,
        read(include_bytes!("../built-in/train-labels-idx1-ubyte.gz"))?,
        Some(10),
    )
}

pub(crate) fn test() -> Result<Dataset, DataError> {
    image_classes(
        read(include_bytes!("../built-in/t10k-images-idx3-ubyte.gz"))?,
        read(include_bytes!("../built-in/t10k-labels-idx1-ubyte.gz"))?,
        Some(10),
    )
}

fn read(packed: &[u8]) -> Result<idx::Idx, DataError> {
    idx::read(GzDecoder::new(packed), None)
}
