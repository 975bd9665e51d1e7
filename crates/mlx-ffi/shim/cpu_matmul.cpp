#include "cpu_matmul.h"

#include <cstring>

#include "mlx/allocator.h"
#include "mlx/backend/cpu/encoder.h"
#include "mlx/c/error.h"
#include "mlx/c/private/array.h"
#include "mlx/c/private/stream.h"
#include "mlx/primitives.h"

namespace {

using namespace mlx::core;

// Where an input's elements are, and where they go in row-major order if they are not yet in it.
struct Operand {
  const char* data;
  size_t size;
  char* packed = nullptr;
  Shape shape;
  Strides strides;
  size_t itemsize = 0;

  mlxrs_bytes bytes() const {
    if (packed != nullptr) {
      pack(data, 0, packed);
      return {packed, size};
    }
    return {data, size};
  }

  // Copies what lies below dimension `dim` and returns the end of the copy.
  char* pack(const char* from, size_t dim, char* to) const {
    size_t left = shape.size() - dim;
    if (left == 0 || (left == 1 && strides[dim] == 1)) {
      size_t length = itemsize * (left == 0 ? 1 : shape[dim]);
      std::memcpy(to, from, length);
      return to + length;
    }
    for (ShapeElem i = 0; i < shape[dim]; i++) {
      to = pack(from + i * strides[dim] * static_cast<int64_t>(itemsize), dim + 1, to);
    }
    return to;
  }
};

class CpuMatmul : public UnaryPrimitive {
 public:
  CpuMatmul(Stream stream, mlxrs_cpu_format format, mlxrs_cpu_kernel kernel)
      : UnaryPrimitive(stream), format_(format), kernel_(kernel) {}

  void eval_cpu(const std::vector<array>& inputs, array& out) override {
    out.set_data(allocator::malloc(out.nbytes()));
    if (out.size() == 0) {
      return;
    }
    auto& encoder = cpu::get_command_encoder(stream());
    // MLX holds the buffers of the inputs until the tasks queued here have run.
    std::vector<Operand> operands;
    for (auto& input : inputs) {
      encoder.set_input_array(input);
      Operand operand{input.data<char>(), input.nbytes()};
      if (!input.flags().row_contiguous && input.size() > 0) {
        array packed(input.shape(), input.dtype(), nullptr, {});
        packed.set_data(allocator::malloc(packed.nbytes()));
        operand.packed = packed.data<char>();
        operand.shape = input.shape();
        operand.strides = input.strides();
        operand.itemsize = input.itemsize();
        encoder.add_temporary(std::move(packed));
      }
      operands.push_back(std::move(operand));
    }
    encoder.set_output_array(out);

    mlxrs_cpu_product product{};
    product.format = format_;
    product.n = out.shape(-1);
    product.m = out.size() / product.n;
    product.k = inputs[0].shape(-1);
    product.out = out.data<char>();
    product.out_size = out.nbytes();
    encoder.dispatch([product, operands = std::move(operands), kernel = kernel_]() mutable {
      product.x = operands[0].bytes();
      product.weight = operands[1].bytes();
      if (operands.size() > 2) {
        product.scales = operands[2].bytes();
      }
      if (operands.size() > 3) {
        product.biases = operands[3].bytes();
      }
      char message[256] = "";
      // MLX reports what a task throws to the next call that waits.
      if (kernel(&product, message, sizeof(message)) != 0) {
        throw std::runtime_error(message);
      }
    });
  }

  void eval_gpu(const std::vector<array>&, array&) override {
    throw std::runtime_error("CpuMatmul runs on the CPU only");
  }

  std::vector<Shape> output_shapes(const std::vector<array>& inputs) override {
    auto shape = inputs[0].shape();
    shape.back() = inputs[1].shape(0);
    return {shape};
  }

  bool is_equivalent(const Primitive& other) const override {
    auto& o = static_cast<const CpuMatmul&>(other);
    return kernel_ == o.kernel_ && format_.dtype == o.format_.dtype &&
        format_.weight_dtype == o.format_.weight_dtype &&
        format_.packing == o.format_.packing && format_.bits == o.format_.bits &&
        format_.group_size == o.format_.group_size;
  }

  const char* name() const override {
    return "CpuMatmul";
  }

 private:
  mlxrs_cpu_format format_;
  mlxrs_cpu_kernel kernel_;
};

array cpu_matmul(
    std::vector<array> inputs,
    mlxrs_cpu_format format,
    mlxrs_cpu_kernel kernel,
    Stream s) {
  if (s.device != Device::cpu) {
    throw std::invalid_argument("the CPU kernels need a CPU stream");
  }
  if (inputs[0].ndim() == 0 || inputs[1].ndim() != 2) {
    throw std::invalid_argument("the CPU kernels take activations [..., k] and weights [n, k]");
  }
  auto primitive = std::make_shared<CpuMatmul>(s, format, kernel);
  auto shape = primitive->output_shapes(inputs)[0];
  auto dtype = inputs[0].dtype();
  return array(std::move(shape), dtype, std::move(primitive), std::move(inputs));
}

} // namespace

// Exceptions become a call of the error handler, as everywhere in mlx-c.
extern "C" int mlxrs_cpu_matmul(
    mlx_array* res,
    const mlx_array x,
    const mlx_array weight,
    const mlx_array scales,
    const mlx_array biases,
    mlxrs_cpu_format format,
    mlxrs_cpu_kernel kernel,
    const mlx_stream s) {
  try {
    std::vector<array> inputs{mlx_array_get_(x), mlx_array_get_(weight)};
    for (auto& extra : {scales, biases}) {
      if (extra.ctx != nullptr) {
        inputs.push_back(mlx_array_get_(extra));
      }
    }
    mlx_array_set_(*res, cpu_matmul(std::move(inputs), format, kernel, mlx_stream_get_(s)));
  } catch (std::exception& e) {
    mlx_error("%s", e.what());
    return 1;
  }
  return 0;
}
