//! The projections of experts, in the forms in which checkpoints have them.

use mlx_ffi::{Array, Dtype, QuantMode, Quantization, Quantized, ops};

use super::Weights;
use crate::error::{Error, Result};
use crate::kernels::Matrix;
use crate::layers::{ExpertLinear, ExpertLora};

impl Weights {
    /// The projections `name` of all experts in one tensor, packed or not, as mlx-lm stores them:
    /// `shape` is `[experts, output, input]`.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub fn expert_linear(&self, name: &str, shape: [i32; 3], bias: bool) -> Result<ExpertLinear> {
        let w = self.at(name);
        let weight = w.matrix(&shape)?;
        let bias = bias.then(|| w.tensor("bias", &shape[..2])).transpose()?;
        let linear = ExpertLinear::new(weight, bias).with_lora(w.expert_lora(shape)?);
        Ok(linear.together(w.together()))
    }

    /// The projections of experts with a number and a tensor each, `experts.0.own.weight` and so
    /// on, put together. An adapter has them under `all`: mlx-lm calls them so then.
    ///
    /// # Errors
    /// As [`expert_linear`](Self::expert_linear).
    pub fn each_expert_linear(
        &self,
        own: &str,
        all: &Weights,
        shape: [i32; 3],
    ) -> Result<ExpertLinear> {
        let [experts, output, input] = shape;
        let module = |expert: i32| self.at(&format!("experts.{expert}.{own}"));
        let matrix = if module(0).has("scales") {
            let packed = |expert: i32| module(expert).packed(&[output, input]);
            Matrix::Quantized(all.stacked((0..experts).map(packed).collect::<Result<_>>()?)?)
        } else {
            let each = |expert: i32| module(expert).tensor("weight", &[output, input]);
            let matrices = (0..experts).map(each).collect::<Result<Vec<Array>>>()?;
            Matrix::Dense(self.stack(&matrices.iter().collect::<Vec<_>>())?)
        };
        let weight = all.weight(matrix, &shape)?;
        let linear = ExpertLinear::new(weight, None).with_lora(all.expert_lora(shape)?);
        Ok(linear.together(all.together()))
    }

    /// Packed matrices of experts as one.
    fn stacked(&self, all: Vec<Quantized>) -> Result<Quantized> {
        let quantization = all[0].quantization;
        if all.iter().any(|one| one.quantization != quantization) {
            return Err(Error::model(format!(
                "`{}`: experts are packed in several ways; pack all of a layer in one",
                self.prefix
            )));
        }
        let biases: Vec<&Array> = all.iter().filter_map(|one| one.biases.as_ref()).collect();
        Ok(Quantized {
            weight: self.stack(&all.iter().map(|one| &one.weight).collect::<Vec<_>>())?,
            scales: self.stack(&all.iter().map(|one| &one.scales).collect::<Vec<_>>())?,
            biases: (!biases.is_empty()).then(|| self.stack(&biases)).transpose()?,
            quantization,
        })
    }

    /// Matrices of one shape, one behind the other: `[matrices, rows, columns]`.
    fn stack(&self, matrices: &[&Array]) -> Result<Array> {
        if self.describes() {
            return Ok(ops::zeros(&[0], matrices.first().map_or(Dtype::F32, |one| one.dtype()))?);
        }
        let rows = ops::concatenate(matrices, 0)?;
        let of_one = matrices.first().map_or(&[][..], |one| one.shape());
        let all = ops::reshape(&rows, &[&[matrices.len() as i32], of_one].concat())?;
        all.eval()?;
        Ok(all)
    }

    /// The projections `parts` of all experts, of `[experts, output, input]` each, whose rows lie
    /// in turn in the module `name`, packed or not. An adapter has them as its neighbours `part`.
    ///
    /// # Errors
    /// As [`expert_linear`](Self::expert_linear).
    pub fn parted_expert_linears<const N: usize>(
        &self,
        name: &str,
        parts: [&str; N],
        shape: [i32; 3],
    ) -> Result<[ExpertLinear; N]> {
        let [experts, output, input] = shape;
        let w = self.at(name);
        let rows = output.checked_mul(N as i32).ok_or_else(|| {
            Error::model(format!("`{}` would have more rows than can be counted", w.prefix))
        })?;
        let whole = [experts, rows, input];
        let all = match w.has("scales") {
            true => Matrix::Quantized(w.packed(&whole)?),
            false => Matrix::Dense(w.tensor("weight", &whole)?),
        };
        let linears = (0..).zip(parts).map(|(index, name)| {
            let rows = |array: &Array| -> Result<Array> {
                if self.describes() {
                    return Ok(array.share()?);
                }
                let part = ops::slice_axis(array, 1, index * output, (index + 1) * output)?;
                // A copy of these rows alone, which keeps nothing of the others.
                let part = ops::contiguous(&part)?;
                part.eval()?;
                Ok(part)
            };
            let part = match &all {
                Matrix::Dense(all) => Matrix::Dense(rows(all)?),
                Matrix::Quantized(all) => Matrix::Quantized(Quantized {
                    weight: rows(&all.weight)?,
                    scales: rows(&all.scales)?,
                    biases: all.biases.as_ref().map(rows).transpose()?,
                    quantization: all.quantization,
                }),
            };
            let own = self.at(name);
            let weight = own.weight(part, &shape)?;
            let linear = ExpertLinear::new(weight, None).with_lora(own.expert_lora(shape)?);
            Ok(linear.together(own.together()))
        });
        let linears = linears.collect::<Result<Vec<_>>>()?;
        Ok(linears.try_into().expect("one for each part"))
    }

    /// The projections `parts` of all experts, of `[experts, output, input]` each, whose rows lie
    /// in turn in the tensor `name`, or whose columns do where it is [turned](Self::is_turned). An
    /// adapter has them as `converted.part`: mlx-lm calls them so then.
    ///
    /// # Errors
    /// As [`expert_linear`](Self::expert_linear).
    pub fn fused_expert_linears<const N: usize>(
        &self,
        name: &str,
        converted: &str,
        parts: [&str; N],
        shape: [i32; 3],
    ) -> Result<[ExpertLinear; N]> {
        let [experts, output, input] = shape;
        let rows = output.checked_mul(N as i32).ok_or_else(|| {
            Error::model(format!("`{}` would have more rows than can be counted", self.name(name)))
        })?;
        let turned = self.is_turned(name, [experts, rows, input]);
        let all = match turned {
            false => self.tensor(name, &[experts, rows, input])?,
            true => self.tensor(name, &[experts, input, rows])?,
        };
        let part = |index: i32| -> Result<Array> {
            if self.describes() {
                return Ok(all.share()?);
            }
            let all = if turned { ops::transpose(&all, &[0, 2, 1])? } else { all.share()? };
            let part = ops::slice_axis(&all, 1, index * output, (index + 1) * output)?;
            // A copy of these rows alone, which keeps nothing of the others.
            let part = ops::reshape(&ops::reshape(&part, &[experts * output, input])?, &shape)?;
            part.eval()?;
            Ok(part)
        };
        let linears = (0..).zip(parts).map(|(index, name)| {
            let all = self.at(converted).at(name);
            let weight = all.weight(Matrix::Dense(part(index)?), &shape)?;
            let linear = ExpertLinear::new(weight, None).with_lora(all.expert_lora(shape)?);
            Ok(linear.together(all.together()))
        });
        let linears = linears.collect::<Result<Vec<_>>>()?;
        Ok(linears.try_into().expect("one for each part"))
    }

    /// Returns true when the tensor `name`, of matrices of `[experts, output, input]`, has rows for
    /// inputs. Qwen 3 VL's experts are released so. With both sides equal it returns false.
    pub fn is_turned(&self, name: &str, [experts, output, input]: [i32; 3]) -> bool {
        output != input && self.shape(name).is_some_and(|shape| shape == [experts, input, output])
    }

    /// The projections `name` of all experts as gpt-oss is released: `name_blocks` of 16 bytes with
    /// 32 values each, `name_scales` and `name_bias`. The bytes are MLX's own packing. Rows are
    /// those of `parts` in turn, for which an adapter has a pair each.
    ///
    /// # Errors
    /// As [`expert_linear`](Self::expert_linear).
    pub fn mxfp4_expert_linear(
        &self,
        name: &str,
        parts: &[&str],
        shape: [i32; 3],
    ) -> Result<ExpertLinear> {
        let [experts, output, input] = shape;
        let quantization = Quantization { mode: QuantMode::Mxfp4, bits: 4, group_size: 32 };
        if input % 32 != 0 {
            return Err(Error::model(format!(
                "`{}` has {input} columns, which groups of 32 do not divide",
                self.name(name)
            )));
        }
        let bytes = |kind: &str, shape: &[i32], parameters| -> Result<Array> {
            let name = format!("{name}_{kind}");
            let header = self.header(&name, shape, Dtype::U8)?;
            if header.dtype != Dtype::U8 || header.is_fp8 {
                return Err(Error::model(format!(
                    "tensor `{}` has the type {:?}, expected bytes",
                    self.name(&name),
                    header.dtype
                )));
            }
            self.take(&name, &header, Dtype::U8, parameters)
        };
        let parameters = shape.iter().map(|&size| size as u64).product();
        let blocks = bytes("blocks", &[experts, output, input / 32, 16], parameters)?;
        let scales = bytes("scales", &[experts, output, input / 32], 0)?;
        self.at(name).check_exponents_f16(QuantMode::Mxfp4, &scales)?;
        let weight = if self.describes() {
            blocks
        } else {
            // The lower half of a byte is the earlier value, here as there.
            ops::reshape(&ops::view(&blocks, Dtype::U32)?, &[experts, output, input / 8])?
        };
        weight.eval()?;
        self.note_packed(quantization, parameters);
        let packed = Quantized { weight, scales, biases: None, quantization };
        self.biased_expert_linear(name, parts, shape, Matrix::Quantized(packed))
    }

    /// The projections `name` of all experts as transformers has those of gpt-oss: `[experts,
    /// input, output]`, and `name_bias`. Columns are those of `parts` in turn, for which an adapter
    /// has a pair each.
    ///
    /// # Errors
    /// As [`expert_linear`](Self::expert_linear).
    pub fn turned_expert_linear(
        &self,
        name: &str,
        parts: &[&str],
        shape: [i32; 3],
    ) -> Result<ExpertLinear> {
        let [experts, output, input] = shape;
        let all = self.tensor(name, &[experts, input, output])?;
        let weight = match self.describes() {
            true => all,
            false => ops::contiguous(&ops::transpose(&all, &[0, 2, 1])?)?,
        };
        weight.eval()?;
        self.biased_expert_linear(name, parts, shape, Matrix::Dense(weight))
    }

    /// The projections `name` of all experts with `name_bias`, and what adapters have for `parts`,
    /// whose rows lie in turn.
    fn biased_expert_linear(
        &self,
        name: &str,
        parts: &[&str],
        shape: [i32; 3],
        matrix: Matrix,
    ) -> Result<ExpertLinear> {
        let bias = self.tensor(&format!("{name}_bias"), &shape[..2])?;
        let weight = self.at(name).weight(matrix, &shape)?;
        Ok(ExpertLinear::new(weight, Some(bias)).with_lora(self.interleaved_lora(parts, shape)?))
    }

    /// The adapter of the experts' projections under this cursor, of `[experts, output, input]`.
    ///
    /// # Errors
    /// Tensors that do not fit; a type that cannot be multiplied here.
    fn expert_lora(&self, shape: [i32; 3]) -> Result<Option<ExpertLora>> {
        let Some((taken, [a, b])) = self.factors(&shape)? else { return Ok(None) };
        self.expert_pair([a, b], shape, taken.rank, taken.scale).map(Some)
    }

    fn expert_pair(
        &self,
        [a, b]: [Array; 2],
        [experts, output, input]: [i32; 3],
        rank: i32,
        scale: f32,
    ) -> Result<ExpertLora> {
        let a = self.weight(Matrix::Dense(a), &[experts, rank, input])?;
        let b = self.weight(Matrix::Dense(b), &[experts, output, rank])?;
        Ok(ExpertLora { a, b, scale })
    }

    /// The adapters of projections whose rows lie in turn in one matrix of `[experts, output,
    /// input]`, as one: its rank is that of all together, and a row has zeros for the others'.
    ///
    /// # Errors
    /// As [`expert_lora`](Self::expert_lora).
    fn interleaved_lora(&self, parts: &[&str], shape: [i32; 3]) -> Result<Option<ExpertLora>> {
        let [experts, output, input] = shape;
        let count = parts.len() as i32;
        let own = [experts, output / count, input];
        let pairs = parts.iter().map(|part| self.at(part).factors(&own));
        let pairs = pairs.collect::<Result<Vec<_>>>()?;
        let found = || pairs.iter().flatten();
        let Some((first, [stand_in, _])) = found().next() else { return Ok(None) };
        let (scale, dtype) = (first.scale, stand_in.dtype());
        let rank = found().map(|(taken, _)| taken.rank).sum();
        if self.describes() {
            let empty = || ops::zeros(&[0], dtype);
            return self.expert_pair([empty()?, empty()?], shape, rank, scale).map(Some);
        }
        let a = ops::concatenate(&found().map(|(_, [a, _])| a).collect::<Vec<_>>(), 1)?;
        let (mut rows, mut before) = (Vec::new(), 0);
        for pair in &pairs {
            let zeros = |rank| ops::zeros(&[experts, output / count, rank], dtype);
            let row = match pair {
                None => zeros(rank)?,
                Some((taken, [_, b])) => {
                    let after = rank - before - taken.rank;
                    let row = ops::concatenate(&[&zeros(before)?, b, &zeros(after)?], 2)?;
                    before += taken.rank;
                    row
                }
            };
            rows.push(ops::expand_dims(&row, 2)?);
        }
        // [experts, rows of a part, parts, r] -> [experts, output, r]
        let b = ops::concatenate(&rows.iter().collect::<Vec<_>>(), 2)?;
        let b = ops::reshape(&b, &[experts, output, rank])?;
        a.eval()?;
        b.eval()?;
        self.expert_pair([a, b], shape, rank, scale).map(Some)
    }
}
