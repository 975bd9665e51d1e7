#include "cpu_gather.h"

#include "mlx/allocator.h"
#include "mlx/backend/cpu/encoder.h"
#include "mlx/c/error.h"
#include "mlx/c/private/array.h"
#include "mlx/c/private/stream.h"
#include "mlx/ops.h"
#include "mlx/primitives.h"

namespace {

using namespace mlx::core;

class CpuGather : public UnaryPrimitive {
 public:
  CpuGather(Stream stream, mlxrs_cpu_format format, mlxrs_cpu_gather_kernel kernel)
      : UnaryPrimitive(stream), format_(format), kernel_(kernel) {}

  // The inputs are x, the indices, the weights and where there are any scales and biases, each in
  // row-major order.
  void eval_cpu(const std::vector<array>& inputs, array& out) override {
    out.set_data(allocator::malloc(out.nbytes()));
    if (out.size() == 0) {
      return;
    }
    auto& encoder = cpu::get_command_encoder(stream());
    // MLX holds the buffers of the inputs until the tasks queued here have run.
    std::vector<mlxrs_bytes> operands;
    for (auto& input : inputs) {
      encoder.set_input_array(input);
      operands.push_back({input.data<char>(), input.nbytes()});
    }
    operands.resize(5);
    encoder.set_output_array(out);

    mlxrs_cpu_gathered product{};
    product.format = format_;
    product.rows = inputs[1].size();
    product.k = inputs[0].shape(-1);
    product.x_rows = product.k == 0 ? product.rows : inputs[0].size() / product.k;
    product.matrices = inputs[2].shape(0);
    product.n = out.shape(-1);
    product.x = operands[0];
    product.indices = operands[1];
    product.weight = operands[2];
    product.scales = operands[3];
    product.biases = operands[4];
    product.out = out.data<char>();
    product.out_size = out.nbytes();
    encoder.dispatch([product, kernel = kernel_]() {
      char message[256] = "";
      // MLX reports what a task throws to the next call that waits.
      if (kernel(&product, message, sizeof(message)) != 0) {
        throw std::runtime_error(message);
      }
    });
  }

  void eval_gpu(const std::vector<array>&, array&) override {
    throw std::runtime_error("CpuGather runs on the CPU only");
  }

  std::vector<Shape> output_shapes(const std::vector<array>& inputs) override {
    auto shape = inputs[1].shape();
    shape.push_back(inputs[2].shape(1));
    return {shape};
  }

  bool is_equivalent(const Primitive& other) const override {
    auto& o = static_cast<const CpuGather&>(other);
    return kernel_ == o.kernel_ && format_.dtype == o.format_.dtype &&
        format_.weight_dtype == o.format_.weight_dtype &&
        format_.packing == o.format_.packing && format_.bits == o.format_.bits &&
        format_.group_size == o.format_.group_size;
  }

  const char* name() const override {
    return "CpuGather";
  }

 private:
  mlxrs_cpu_format format_;
  mlxrs_cpu_gather_kernel kernel_;
};

array cpu_gather(
    std::vector<array> inputs,
    mlxrs_cpu_format format,
    mlxrs_cpu_gather_kernel kernel,
    Stream s) {
  if (s.device != Device::cpu) {
    throw std::invalid_argument("the CPU kernels need a CPU stream");
  }
  if (inputs[0].ndim() == 0 || inputs[1].dtype() != uint32 || inputs[2].ndim() != 3) {
    throw std::invalid_argument(
        "the CPU kernels take activations [..., k], indices of type uint32 and weights [matrices, n, k]");
  }
  for (auto& input : inputs) {
    // Weights are as they were loaded, and stay where they are.
    if (!input.is_available() || !input.flags().row_contiguous) {
      input = contiguous(input, false, s);
    }
  }
  auto primitive = std::make_shared<CpuGather>(s, format, kernel);
  auto shape = primitive->output_shapes(inputs)[0];
  auto dtype = inputs[0].dtype();
  return array(std::move(shape), dtype, std::move(primitive), std::move(inputs));
}

} // namespace

// Exceptions become a call of the error handler, as everywhere in mlx-c.
extern "C" int mlxrs_cpu_gather(
    mlx_array* res,
    const mlx_array x,
    const mlx_array indices,
    const mlx_array weight,
    const mlx_array scales,
    const mlx_array biases,
    mlxrs_cpu_format format,
    mlxrs_cpu_gather_kernel kernel,
    const mlx_stream s) {
  try {
    std::vector<array> inputs{mlx_array_get_(x), mlx_array_get_(indices), mlx_array_get_(weight)};
    for (auto& extra : {scales, biases}) {
      if (extra.ctx != nullptr) {
        inputs.push_back(mlx_array_get_(extra));
      }
    }
    mlx_array_set_(*res, cpu_gather(std::move(inputs), format, kernel, mlx_stream_get_(s)));
  } catch (std::exception& e) {
    mlx_error("%s", e.what());
    return 1;
  }
  return 0;
}
