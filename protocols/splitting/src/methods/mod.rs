//! The methods, a file each. A new one is a new file and a line in the list below.

use selvedge_words::choices;

use super::SplitMethod;

choices! {
    dyn SplitMethod, "split method":
    sequential::Sequential = "sequential",
    splitfed_v1::SplitFedV1 = "splitfed-v1",
    splitfed_v2::SplitFedV2 = "splitfed-v2",
    parallel::Parallel = "parallel",
    gapsl::Gapsl = "gapsl",
}
