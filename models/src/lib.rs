//! Networks as lists of stages: layers, kernels, cutting, thinning.
