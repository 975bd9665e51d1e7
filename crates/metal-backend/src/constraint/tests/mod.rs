//! Constraints against tokenizers of every kind, with draws in place of a model.
