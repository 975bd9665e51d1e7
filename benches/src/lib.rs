//! Throughput measurements with criterion: `cargo bench -p benches`. Each file in `benches/` is one
//! topic; `side_by_side.py` compares the program with mlx-lm.

#![forbid(unsafe_code)]
