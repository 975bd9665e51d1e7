//! The packings of vendors (AWQ, GPTQ, compressed-tensors, ModelOpt), given out as MLX's own.
//!
//! A matrix of whole numbers in groups of 32 columns or more becomes MLX's affine packing: its
//! codes stay as they are, and a bias stands for the code that means 0. Floats whose scales are
//! exponents of two are MLX's already. All else is given out in the model's type.

mod matrix;
mod method;
mod words;

use std::collections::{BTreeMap, BTreeSet};

use mlx_ffi::Dtype;

use self::matrix::{Global, Layout, Packed, Zeros, indices};
use self::method::{Method, Tool};
use super::source::TensorHeader;
use crate::error::{Error, Result};
use crate::files::ModelFiles;

type Headers = BTreeMap<String, TensorHeader>;

/// Last parts of the names of what is said of activations, which are not rounded here.
const OF_ACTIVATIONS: [&str; 5] =
    ["input_scale", "input_zero_point", "input_global_scale", "output_scale", "output_zero_point"];

/// The tensors of `headers` with matrices in MLX's packing, where `files` have a vendor's.
///
/// # Errors
/// A packing that is not read; tensors that do not fit each other, or the config.
pub(crate) fn as_of_mlx(files: &ModelFiles, headers: Headers) -> Result<Headers> {
    if !matches!(files, ModelFiles::Folder(_) | ModelFiles::Embedded(_)) {
        return Ok(headers);
    }
    let Some(method) = Method::of(files)? else { return Ok(headers) };
    let modules: BTreeSet<String> = headers.keys().filter_map(|name| module_of(name)).collect();
    let mut all = Module { files, method: &method, name: String::new(), left: headers };
    for name in modules {
        all.method.check_name(&name)?;
        all.name = name;
        all.replace()?;
    }
    Ok(all.left)
}

/// The module whose codes the tensor `name` may have.
fn module_of(name: &str) -> Option<String> {
    let ends = [".qweight", ".weight_packed", ".weight_scale"];
    ends.into_iter().find_map(|end| name.strip_suffix(end)).map(str::to_owned)
}

/// A packed module, and the tensors that are left.
struct Module<'a> {
    files: &'a ModelFiles,
    method: &'a Method,
    name: String,
    left: Headers,
}

impl Module<'_> {
    /// Gives the module's tensors out in another form.
    fn replace(&mut self) -> Result<()> {
        let packed = match self.take("qweight") {
            Some(codes) => match self.method.tool {
                Tool::Awq => self.awq(codes)?,
                Tool::Gptq { is_first } => self.gptq(codes, is_first)?,
                Tool::Others => return Err(self.wrong("qweight", "a packing of AWQ or GPTQ")),
            },
            None => match self.take("weight_packed") {
                Some(codes) => self.compressed(codes)?,
                None => match self.of_bytes()? {
                    Some(packed) => packed,
                    None => return Ok(()),
                },
            },
        };
        let Packed { bits, group, columns, .. } = packed;
        self.method.check(&self.name, bits, group, columns)?;
        for name in OF_ACTIVATIONS {
            self.take(name);
        }
        for (name, header) in packed.parts() {
            self.left.insert(format!("{}.{name}", self.name), header);
        }
        Ok(())
    }

    fn take(&mut self, name: &str) -> Option<TensorHeader> {
        self.left.remove(&format!("{}.{name}", self.name))
    }

    fn needed(&mut self, name: &str) -> Result<TensorHeader> {
        let missing = || Error::model(format!("tensor `{}.{name}` is missing", self.name));
        self.left.get(&format!("{}.{name}", self.name)).ok_or_else(missing)?;
        Ok(self.take(name).expect("it is there"))
    }

    fn wrong(&self, name: &str, expected: &str) -> Error {
        Error::model(format!(
            "tensor `{}.{name}` does not fit {}: expected {expected}",
            self.name, self.method.name
        ))
    }

    /// Refuses a tensor that has another type or shape.
    fn check(&self, name: &str, found: &TensorHeader, dtype: Dtype, shape: &[usize]) -> Result<()> {
        let fits = found.shape.iter().map(|&dim| dim as usize).eq(shape.iter().copied());
        let is_float = dtype.is_float() && found.dtype.is_float();
        if fits && (is_float || found.dtype == dtype) && !found.is_fp8 {
            return Ok(());
        }
        let are =
            |dtype: Dtype| if dtype.is_float() { "floats".into() } else { format!("{dtype:?}") };
        let expected =
            format!("{} of {shape:?}, found {:?} of {:?}", are(dtype), found.dtype, found.shape);
        Err(self.wrong(name, &expected))
    }

    /// The two sizes of a matrix, neither of them 0.
    fn sizes(&self, name: &str, found: &TensorHeader) -> Result<[usize; 2]> {
        match found.shape[..] {
            [rows, columns] if rows > 0 && columns > 0 => Ok([rows as usize, columns as usize]),
            _ => Err(self.wrong(name, &format!("a matrix, found {:?}", found.shape))),
        }
    }

    fn awq(&mut self, codes: TensorHeader) -> Result<Packed> {
        let [columns, words] = self.sizes("qweight", &codes)?;
        let (bits, rows) = (4, words * 8);
        self.check("qweight", &codes, Dtype::I32, &[columns, words])?;
        let scales = self.needed("scales")?;
        let [groups, _] = self.sizes("scales", &scales)?;
        let group = self.group("scales", columns, groups)?;
        self.check("scales", &scales, Dtype::F16, &[groups, rows])?;
        let zeros = self.needed("qzeros")?;
        self.check("qzeros", &zeros, Dtype::I32, &[groups, words])?;
        if columns % 8 != 0 {
            return Err(self.wrong("qweight", "a multiple of 8 rows"));
        }
        let (layout, zeros) = (Layout::Awq, Zeros::Awq(zeros));
        let (order, global) = (None, None);
        Ok(Packed { layout, bits, rows, columns, group, codes, scales, zeros, order, global })
    }

    /// The columns that share a scale, where a row of so many has so many groups.
    fn group(&self, name: &str, columns: usize, groups: usize) -> Result<usize> {
        let group = columns.div_ceil(groups);
        // The last group may be shorter: its size is the config's then.
        let of_config = self.method.groups.iter().flatten().map(|group| *group as usize);
        let fits = |group: &usize| columns.div_ceil(*group) == groups;
        of_config.into_iter().find(fits).or(Some(group).filter(fits)).ok_or_else(|| {
            self.wrong(name, &format!("groups of {columns} columns, found {groups}"))
        })
    }

    fn gptq(&mut self, codes: TensorHeader, is_first: bool) -> Result<Packed> {
        let [words, rows] = self.sizes("qweight", &codes)?;
        self.check("qweight", &codes, Dtype::I32, &[words, rows])?;
        let scales = self.needed("scales")?;
        let [groups, _] = self.sizes("scales", &scales)?;
        let order = self.take("g_idx");
        let of_order = order.as_ref().map(TensorHeader::elements).filter(|count| *count > 0);
        let columns = match (of_order, self.method.bits.first()) {
            (Some(columns), _) => columns as usize,
            (None, Some(bits)) => words * 32 / *bits as usize,
            (None, None) => return Err(self.wrong("g_idx", "it, or `bits` in the config")),
        };
        let bits = words * 32 / columns;
        if !matches!(bits, 2 | 3 | 4 | 8) || columns * bits != words * 32 || rows * bits % 32 != 0 {
            let expected =
                format!("codes of 2, 3, 4 or 8 bits, found {words} words for {columns} columns");
            return Err(self.wrong("qweight", &expected));
        }
        let group = self.group("scales", columns, groups)?;
        self.check("scales", &scales, Dtype::F16, &[groups, rows])?;
        let zeros = self.needed("qzeros")?;
        self.check("qzeros", &zeros, Dtype::I32, &[groups, rows * bits / 32])?;
        let order = order.filter(|_| of_order.is_some());
        let order = order.map(|order| self.order("g_idx", order, [columns, group, groups]));
        let order = order.transpose()?.flatten();
        let (layout, global) = (Layout::Turned, None);
        let zeros = Zeros::Turned { header: zeros, is_one_less: is_first };
        Ok(Packed { layout, bits, rows, columns, group, codes, scales, zeros, order, global })
    }

    /// The groups of columns, where these do not follow each other.
    fn order(
        &self,
        name: &str,
        order: TensorHeader,
        [columns, group, groups]: [usize; 3],
    ) -> Result<Option<TensorHeader>> {
        self.check(name, &order, Dtype::I32, &[columns])?;
        let of = |error: Error| Error::model(format!("tensor `{}.{name}` {error}", self.name));
        let found = indices(self.files, &order, groups).map_err(of)?;
        let in_turn = found.iter().enumerate().all(|(column, found)| *found == column / group);
        Ok((!in_turn).then_some(order))
    }

    /// The matrix that compressed-tensors has in `weight_packed`.
    fn compressed(&mut self, codes: TensorHeader) -> Result<Packed> {
        let scales = self.needed("weight_scale")?;
        if codes.dtype == Dtype::U8 {
            self.take("weight_shape");
            return self.fp4("weight_packed", codes, scales);
        }
        let [rows, words] = self.sizes("weight_packed", &codes)?;
        self.check("weight_packed", &codes, Dtype::I32, &[rows, words])?;
        let [of_rows, groups] = self.sizes("weight_scale", &scales)?;
        let columns = match self.take("weight_shape") {
            Some(shape) => self.columns(&shape, rows)?,
            None => words * 32 / self.method.bits.first().copied().unwrap_or(4) as usize,
        };
        let bits = (words * 32).checked_div(columns).unwrap_or(0);
        if !matches!(bits, 2 | 4 | 8) || columns * bits != words * 32 {
            let expected =
                format!("codes of 2, 4 or 8 bits, found {words} words for {columns} columns");
            return Err(self.wrong("weight_packed", &expected));
        }
        let group = self.group("weight_scale", columns, groups)?;
        if [of_rows, groups] != [1, 1] {
            self.check("weight_scale", &scales, Dtype::F16, &[rows, groups])?;
        }
        let zeros = match self.take("weight_zero_point") {
            None => Zeros::Middle,
            Some(zeros) => {
                let words = rows.div_ceil(32 / bits);
                self.check("weight_zero_point", &zeros, Dtype::I32, &[words, groups])?;
                Zeros::Rows(zeros)
            }
        };
        let order = self.take("weight_g_idx");
        let order = order.map(|order| self.order("weight_g_idx", order, [columns, group, groups]));
        let (layout, order, global) = (Layout::Rows, order.transpose()?.flatten(), None);
        Ok(Packed { layout, bits, rows, columns, group, codes, scales, zeros, order, global })
    }

    /// The columns of a matrix whose shape is a tensor of its own.
    fn columns(&self, shape: &TensorHeader, rows: usize) -> Result<usize> {
        if shape.elements() == 2 && matches!(shape.dtype, Dtype::I64 | Dtype::I32) {
            let array = self.files.read_tensor(shape)?;
            let size = shape.dtype.size();
            let sizes = array.read_bytes(|bytes| {
                let number =
                    |bytes: &[u8]| bytes.iter().rev().fold(0, |all, b| all << 8 | u64::from(*b));
                bytes.chunks_exact(size).map(number).collect::<Vec<u64>>()
            })?;
            if sizes[0] == rows as u64 && (1..=i32::MAX as u64).contains(&sizes[1]) {
                return Ok(sizes[1] as usize);
            }
        }
        Err(self.wrong("weight_shape", &format!("{rows} and the columns")))
    }

    /// Floats of four bits, two in a byte.
    fn fp4(&mut self, name: &str, codes: TensorHeader, scales: TensorHeader) -> Result<Packed> {
        let [rows, bytes] = self.sizes(name, &codes)?;
        let columns = bytes * 2;
        let [of_rows, groups] = self.sizes("weight_scale", &scales)?;
        // Exponents of two are those of groups of 32.
        let is_known = scales.is_fp8 || scales.dtype == Dtype::U8 && columns == groups * 32;
        if of_rows != rows || !is_known || columns % groups != 0 || bytes % 4 != 0 {
            let expected = format!(
                "floats of 8 bits, or exponents for 32 columns each, for {rows} rows of {columns} columns, found {:?} of {:?}",
                scales.dtype, scales.shape
            );
            return Err(self.wrong("weight_scale", &expected));
        }
        let divides = self.left.contains_key(&format!("{}.weight_global_scale", self.name));
        let global = self.take("weight_global_scale").or_else(|| self.take("weight_scale_2"));
        if let Some(global) = &global {
            if global.elements() != 1 || !global.dtype.is_float() {
                return Err(self.wrong("weight_global_scale", "one float"));
            }
        } else if scales.is_fp8 {
            return Err(self.wrong("weight_global_scale", "it beside scales of floats of 8 bits"));
        }
        let global = global.map(|header| Global { header, divides });
        let (layout, zeros, order, group) = (Layout::Fp4, Zeros::Middle, None, columns / groups);
        Ok(Packed { layout, bits: 4, rows, columns, group, codes, scales, zeros, order, global })
    }

    /// A matrix in bytes: whole numbers, floats of 8 bits with exponents of two, or two floats of
    /// four. `None`: floats of 8 bits with other scales, which stay as they are.
    fn of_bytes(&mut self) -> Result<Option<Packed>> {
        let codes = self.needed("weight")?;
        let scales = self.needed("weight_scale")?;
        if codes.dtype == Dtype::U8 && !codes.is_fp8 {
            return self.fp4("weight", codes, scales).map(Some);
        }
        let [rows, columns] = self.sizes("weight", &codes)?;
        if codes.is_fp8 {
            return self.fp8([rows, columns], codes, scales);
        }
        self.check("weight", &codes, Dtype::I8, &[rows, columns])?;
        let groups = match scales.shape[..] {
            [_, groups] if groups > 0 => groups as usize,
            _ => 1,
        };
        if scales.elements() != 1 {
            self.check("weight_scale", &scales, Dtype::F16, &[rows, groups])?;
        }
        let zeros = match self.take("weight_zero_point") {
            None => Zeros::Middle,
            Some(zeros) if scales.elements() == 1 && zeros.elements() == 1 => {
                return Err(self.wrong("weight_zero_point", &format!("one of each of {rows} rows")));
            }
            Some(zeros) => {
                self.check("weight_zero_point", &zeros, Dtype::I8, &[rows, groups])?;
                Zeros::Signed(zeros)
            }
        };
        if columns % 4 != 0 {
            return Err(self.wrong("weight", "a multiple of 4 columns"));
        }
        let group = self.group("weight_scale", columns, groups)?;
        let (layout, bits, order, global) = (Layout::Signed, 8, None, None);
        let all =
            Packed { layout, bits, rows, columns, group, codes, scales, zeros, order, global };
        Ok(Some(all))
    }

    fn fp8(
        &mut self,
        [rows, columns]: [usize; 2],
        codes: TensorHeader,
        scales: TensorHeader,
    ) -> Result<Option<Packed>> {
        let (group, bits) = (32, 8);
        let are_exponents = scales.dtype == Dtype::U8 && !scales.is_fp8 && columns % group == 0;
        if are_exponents {
            self.check("weight_scale", &scales, Dtype::U8, &[rows, columns / group])?;
            let (layout, zeros, order, global) = (Layout::Fp8, Zeros::Middle, None, None);
            let all =
                Packed { layout, bits, rows, columns, group, codes, scales, zeros, order, global };
            return Ok(Some(all));
        }
        // Read as DeepSeek's, under the name that these have.
        self.left.insert(format!("{}.weight", self.name), codes);
        self.left.insert(format!("{}.weight_scale_inv", self.name), scales);
        Ok(None)
    }
}
