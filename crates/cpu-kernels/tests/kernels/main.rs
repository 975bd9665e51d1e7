//! Each kernel against plain arithmetic.

mod arrange;
mod attention;
mod finish;
mod gather;
mod mlx_layout;
mod numbers;
mod pictures;
mod plain;
mod recurrent;
mod reference;
mod rows;
mod scan;
mod step;
mod words;
