#include "cpu_operation.h"

#include <cstring>
#include <memory>

#include "mlx/allocator.h"
#include "mlx/backend/cpu/encoder.h"
#include "mlx/c/error.h"
#include "mlx/c/private/array.h"
#include "mlx/c/private/enums.h"
#include "mlx/c/private/stream.h"
#include "mlx/c/private/vector.h"
#include "mlx/primitives.h"

namespace {

using namespace mlx::core;

// An input, and where it goes in row-major order if its last dimension is not contiguous.
struct Operand {
  const char* data;
  char* packed = nullptr;
  Dtype dtype;
  Shape shape;
  Strides strides;

  mlxrs_cpu_view view() {
    if (packed != nullptr) {
      pack(data, 0, packed);
      data = packed;
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
        const_cast<char*>(data),
        size,
        mlx_dtype_to_c(dtype),
        static_cast<int>(shape.size()),
        shape.data(),
        strides.data()};
  }

  bool is_fit() const {
    for (size_t i = 0; i < shape.size(); i++) {
      bool is_last = i + 1 == shape.size();
      if (shape[i] > 1 && (strides[i] < 0 || (is_last && strides[i] != 1))) {
        return false;
      }
    }
    return true;
  }

  // Copies what lies below dimension `dim` and returns the end of the copy.
  char* pack(const char* from, size_t dim, char* to) const {
    if (dim == shape.size()) {
      std::memcpy(to, from, size_of(dtype));
      return to + size_of(dtype);
    }
    for (ShapeElem i = 0; i < shape[dim]; i++) {
      to = pack(from + i * strides[dim] * static_cast<int64_t>(size_of(dtype)), dim + 1, to);
    }
    return to;
  }
};

using State = std::shared_ptr<void>;

class CpuOperation : public UnaryPrimitive {
 public:
  CpuOperation(Stream stream, mlxrs_cpu_compute compute, State state, Shape shape, Shape order)
      : UnaryPrimitive(stream),
        compute_(compute),
        state_(std::move(state)),
        shape_(std::move(shape)),
        order_(std::move(order)) {}

  void eval_cpu(const std::vector<array>& inputs, array& out) override {
    Strides strides(out.ndim());
    int64_t stride = 1;
    bool row = true;
    bool column = true;
    for (size_t i = order_.size(); i-- > 0;) {
      strides[order_[i]] = stride;
      stride *= out.shape(order_[i]);
      row &= order_[i] == static_cast<int>(i);
      column &= order_[i] == static_cast<int>(order_.size() - 1 - i);
    }
    array::Flags flags;
    flags.contiguous = true;
    flags.row_contiguous = row || out.size() <= 1;
    flags.col_contiguous = column || out.size() <= 1;
    out.set_data(allocator::malloc(out.nbytes()), out.size(), strides, flags);
    if (out.size() == 0) {
      return;
    }
    auto& encoder = cpu::get_command_encoder(stream());
    // MLX holds the buffers of the inputs until the tasks queued here have run.
    std::vector<Operand> operands;
    for (auto& input : inputs) {
      encoder.set_input_array(input);
      Operand operand{input.data<char>(), nullptr, input.dtype(), input.shape(), input.strides()};
      if (input.size() > 0 && !operand.is_fit()) {
        array packed(input.shape(), input.dtype(), nullptr, {});
        packed.set_data(allocator::malloc(packed.nbytes()));
        operand.packed = packed.data<char>();
        encoder.add_temporary(std::move(packed));
      }
      operands.push_back(std::move(operand));
    }
    encoder.set_output_array(out);
    Operand result{out.data<char>(), nullptr, out.dtype(), out.shape(), std::move(strides)};
    encoder.dispatch([operands = std::move(operands),
                      result = std::move(result),
                      compute = compute_,
                      state = state_]() mutable {
      std::vector<mlxrs_cpu_view> views;
      for (auto& operand : operands) {
        views.push_back(operand.view());
      }
      auto view = result.view();
      char message[256] = "";
      // MLX reports what a task throws to the next call that waits.
      if (compute(state.get(), views.data(), views.size(), &view, message, sizeof(message)) != 0) {
        throw std::runtime_error(message);
      }
    });
  }

  void eval_gpu(const std::vector<array>&, array&) override {
    throw std::runtime_error("CpuOperation runs on the CPU only");
  }

  std::vector<Shape> output_shapes(const std::vector<array>&) override {
    return {shape_};
  }

  bool is_equivalent(const Primitive& other) const override {
    return state_ == static_cast<const CpuOperation&>(other).state_;
  }

  const char* name() const override {
    return "CpuOperation";
  }

 private:
  mlxrs_cpu_compute compute_;
  State state_;
  Shape shape_;
  Shape order_;
};

} // namespace

// Exceptions become a call of the error handler, as everywhere in mlx-c.
extern "C" int mlxrs_cpu_operation(
    mlx_array* res,
    const mlx_vector_array inputs,
    mlxrs_cpu_result result,
    mlxrs_cpu_kernel_of kernel,
    const mlx_stream s) {
  try {
    State state(kernel.state, kernel.drop);
    auto stream = mlx_stream_get_(s);
    if (stream.device != Device::cpu) {
      throw std::invalid_argument("the CPU kernels need a CPU stream");
    }
    Shape shape(result.shape, result.shape + result.ndim);
    Shape order(result.order, result.order + result.ndim);
    auto primitive =
        std::make_shared<CpuOperation>(stream, kernel.compute, std::move(state), shape, order);
    auto dtype = mlx_dtype_to_cpp(result.dtype);
    mlx_array_set_(
        *res, array(std::move(shape), dtype, std::move(primitive), mlx_vector_array_get_(inputs)));
  } catch (std::exception& e) {
    mlx_error("%s", e.what());
    return 1;
  }
  return 0;
}
