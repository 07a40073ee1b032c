//! The data set that the first run uses without a network: the first 10,000 training and the first 2,000 test
//! images of Fashion-MNIST (Xiao, Rasul, Vollgraf 2017, arXiv:1708.07747), MIT licence (`built-in/LICENSE`).

use flate2::read::GzDecoder;

use crate::source::image_classes;
use crate::{DataError, Split, idx};

pub(crate) fn load() -> Result<Split, DataError> {
    let read = |packed: &[u8]| idx::read(GzDecoder::new(packed), None);
    let train = image_classes(
        read(include_bytes!("../built-in/train-images-idx3-ubyte.gz"))?,
        read(include_bytes!("../built-in/train-labels-idx1-ubyte.gz"))?,
        Some(10),
    )?;
    let test = image_classes(
        read(include_bytes!("../built-in/t10k-images-idx3-ubyte.gz"))?,
        read(include_bytes!("../built-in/t10k-labels-idx1-ubyte.gz"))?,
        Some(10),
    )?;
    Split::new(train, Some(test))
}
