#include "cpu_operation.h"
#include "cpu_task.h"
#include "device_memory.h"
#include "guarded.h"

#include <algorithm>
#include <cstring>

#include "mlx/allocator.h"
#include "mlx/backend/cpu/encoder.h"
#include "mlx/c/private/array.h"
#include "mlx/c/private/enums.h"
#include "mlx/c/private/stream.h"
#include "mlx/c/private/vector.h"

using namespace mlx::core;

namespace mlxrs {
namespace {

// Copies what lies below dimension `dim` and returns the end of the copy.
char* pack(const CpuOperand& operand, const char* from, size_t dim, char* to) {
  size_t item = size_of(operand.dtype);
  size_t left = operand.shape.size() - dim;
  if (left == 0 || (left == 1 && operand.strides[dim] == 1)) {
    size_t length = item * (left == 0 ? 1 : operand.shape[dim]);
    std::memcpy(to, from, length);
    return to + length;
  }
  for (ShapeElem i = 0; i < operand.shape[dim]; i++) {
    to = pack(operand, from + i * operand.strides[dim] * static_cast<int64_t>(item), dim + 1, to);
  }
  return to;
}

} // namespace

bool CpuOperand::is_fit(bool row_major) const {
  int64_t dense = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    bool is_last = i + 1 == shape.size();
    bool is_dense = strides[i] == dense;
    if (shape[i] > 1 && (strides[i] < 0 || ((is_last || row_major) && !is_dense))) {
      return false;
    }
    dense *= shape[i];
  }
  return true;
}

bool CpuOperand::overlaps(const CpuOperand& other) const {
  auto bytes = [](const CpuOperand& of) -> size_t {
    int64_t last = 0;
    for (size_t i = 0; i < of.shape.size(); i++) {
      if (of.shape[i] == 0) {
        return 0;
      }
      last += (of.shape[i] - 1) * of.strides[i];
    }
    return (last + 1) * size_of(of.dtype);
  };
  auto own = bytes(*this), others = bytes(other);
  return own > 0 && others > 0 && data < other.data + others && other.data < data + own;
}

mlxrs_cpu_view CpuOperand::view() {
  if (packed != nullptr) {
    pack(*this, data, 0, packed);
    data = packed;
    packed = nullptr;
    int64_t stride = 1;
    for (size_t i = shape.size(); i-- > 0;) {
      strides[i] = stride;
      stride *= shape[i];
    }
  }
  size_t last = 0;
  bool empty = false;
  for (size_t i = 0; i < shape.size(); i++) {
    empty |= shape[i] == 0;
    // One element needs no stride, and MLX states any.
    if (shape[i] == 1) {
      strides[i] = 0;
    }
    last += (shape[i] - 1) * strides[i];
  }
  size_t size = empty ? 0 : (last + 1) * size_of(dtype);
  return {
      data, size, mlx_dtype_to_c(dtype), static_cast<int>(shape.size()), shape.data(), strides.data()};
}

void CpuTask::run() {
  std::vector<mlxrs_cpu_view> views;
  views.reserve(inputs.size() + outputs.size());
  for (auto* operands : {&inputs, &outputs}) {
    for (auto& operand : *operands) {
      views.push_back(operand.view());
    }
  }
  char message[256] = "";
  auto* written = views.data() + inputs.size();
  // MLX reports what a task throws to the next call that waits.
  if (compute(state.get(), views.data(), inputs.size(), written, outputs.size(), message, sizeof(message)) != 0) {
    throw std::runtime_error(message);
  }
}

CpuOperation::CpuOperation(
    Stream stream,
    const mlxrs_cpu_form& form,
    mlxrs_cpu_compute compute,
    std::shared_ptr<void> state)
    : Primitive(stream),
      order_(form.order, form.order + form.ndim),
      row_major_(form.row_major),
      written_(form.written, form.written + form.written_count),
      compute_(compute),
      state_(std::move(state)) {}

Strides CpuOperation::strides(const Shape& shape) const {
  Strides strides(shape.size());
  int64_t stride = 1;
  for (size_t i = order_.size(); i-- > 0;) {
    strides[order_[i]] = stride;
    stride *= shape[order_[i]];
  }
  return strides;
}

CpuTask CpuOperation::task(std::vector<CpuOperand> inputs, std::vector<CpuOperand> outputs) const {
  return {std::move(inputs), std::move(outputs), compute_, state_};
}

void CpuOperation::eval_cpu(const std::vector<array>& inputs, std::vector<array>& outputs) {
  auto& out = outputs[0];
  bool row = true;
  bool column = true;
  for (size_t i = 0; i < order_.size(); i++) {
    row &= order_[i] == static_cast<int>(i);
    column &= order_[i] == static_cast<int>(order_.size() - 1 - i);
  }
  array::Flags flags;
  flags.contiguous = true;
  flags.row_contiguous = row || out.size() <= 1;
  flags.col_contiguous = column || out.size() <= 1;
  may_allocate(out.nbytes());
  out.set_data(allocator::malloc(out.nbytes()), out.size(), strides(out.shape()), flags);
  for (size_t i = 0; i < written_.size(); i++) {
    auto& written = inputs[written_[i]];
    auto shares = [&](const array& a) { return a.data_shared_ptr() == written.data_shared_ptr(); };
    if (std::count_if(inputs.begin(), inputs.end(), shares) > 1) {
      throw std::invalid_argument("what an operation writes into is another of its inputs too");
    }
    outputs[1 + i].copy_shared_buffer(written);
  }
  if (out.size() == 0) {
    return;
  }
  auto& encoder = cpu::get_command_encoder(stream());
  // MLX holds the buffers of the arrays until the tasks queued here have run.
  std::vector<CpuOperand> read, made;
  for (size_t i = 0; i < inputs.size(); i++) {
    if (std::find(written_.begin(), written_.end(), i) != written_.end()) {
      continue;
    }
    array input = inputs[i];
    encoder.set_input_array(input);
    CpuOperand operand{input.data<char>(), input.dtype(), input.shape(), input.strides()};
    if (input.size() > 0 && !operand.is_fit(row_major_)) {
      array packed(input.shape(), input.dtype(), nullptr, {});
      packed.set_data(allocator::malloc(packed.nbytes()));
      operand.packed = packed.data<char>();
      encoder.add_temporary(std::move(packed));
    }
    read.push_back(std::move(operand));
  }
  for (auto& output : outputs) {
    encoder.set_output_array(output);
    made.push_back({output.data<char>(), output.dtype(), output.shape(), output.strides()});
    if (!made.back().is_fit(false)) {
      throw std::invalid_argument("an operation cannot write into an array of this layout");
    }
  }
  encoder.dispatch([task = task(std::move(read), std::move(made))]() mutable { task.run(); });
}

void CpuOperation::eval_gpu(const std::vector<array>&, std::vector<array>&) {
  throw std::runtime_error("CpuOperation runs on the CPU only");
}

bool CpuOperation::is_equivalent(const Primitive& other) const {
  return state_ == static_cast<const CpuOperation&>(other).state_;
}

const char* CpuOperation::name() const {
  return "CpuOperation";
}

} // namespace mlxrs

// Exceptions become a call of the error handler, as everywhere in mlx-c.
extern "C" int mlxrs_cpu_operation(
    mlx_vector_array* res,
    const mlx_vector_array inputs,
    mlxrs_cpu_form form,
    mlxrs_cpu_kernel kernel,
    const mlx_stream s) {
  return mlxrs::guarded([&] {
    std::shared_ptr<void> state(kernel.state, kernel.drop);
    auto stream = mlx_stream_get_(s);
    if (stream.device != Device::cpu) {
      throw std::invalid_argument("the CPU kernels need a CPU stream");
    }
    auto& arrays = mlx_vector_array_get_(inputs);
    std::vector<Shape> shapes{Shape(form.shape, form.shape + form.ndim)};
    std::vector<Dtype> dtypes{mlx_dtype_to_cpp(form.dtype)};
    auto primitive =
        std::make_shared<mlxrs::CpuOperation>(stream, form, kernel.compute, std::move(state));
    for (int index : primitive->written()) {
      shapes.push_back(arrays.at(index).shape());
      dtypes.push_back(arrays.at(index).dtype());
    }
    mlx_vector_array_set_(*res, array::make_arrays(shapes, dtypes, primitive, arrays));
  });
}
