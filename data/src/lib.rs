//! Federated data sets: loaders and partitions.
