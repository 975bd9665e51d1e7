#include "recover.h"

#include <stdexcept>

#include "cuda_driver.h"
#include "device_memory.h"
#include "guarded.h"
#include "mlx/c/private/stream.h"
#include "mlx/memory.h"
#include "mlx/ops.h"
#include "mlx/transforms.h"
#include "mlx_internals.h"

using namespace mlx::core;

namespace mlxrs {
namespace {

// Where an operation fails halfway, MLX keeps what it has prepared before, and prepares the rest beside it.
void drop_prepared(Encoder& encoder) {
  auto& c = *cuda();
  Handle graph = nullptr;
  check(c.new_graph(&graph, 0), "cuGraphCreate");
  if (encoder.graph) {
    c.free_graph(encoder.graph);
  }
  encoder.graph = graph;
  encoder.node_count = 0;
  encoder.in_concurrent = false;
  encoder.from_nodes.clear();
  encoder.to_nodes.clear();
  encoder.nodes_key.clear();
  encoder.deps_key.clear();
  encoder.concurrent_nodes.clear();
  encoder.active_deps.clear();
  encoder.active_outputs.clear();
  encoder.node_map.clear();
  encoder.bytes = 0;
  encoder.is_updatable = true;
}

// CUDA's runtime keeps the last error of each thread, and MLX fails whatever it waits for while there is
// one. The runtime is a part of MLX's library that nobody else can call, and MLX itself clears the error in
// one place: where a graph has not the form of the one that was sent under its key before.
void clear_error(Encoder& encoder, Stream stream) {
  for (int nodes : {1, 2}) {
    for (int i = 0; i < nodes; i++) {
      Handle node;
      check(cuda()->add_empty(&node, encoder.graph, nullptr, 0), "cuGraphAddEmptyNode");
    }
    encoder.node_count = nodes;
    encoder.nodes_key = "recover";
    synchronize(stream);
  }
}

void recover(Stream stream) {
  if (stream.device != Device::gpu) {
    clear_cache();
    return;
  }
  auto* encoder = cuda() ? static_cast<Encoder*>(cuda()->encoder(stream)) : nullptr;
  if (encoder) {
    drop_prepared(*encoder);
  }
  synchronize(stream);
  clear_cache();
  mlxrs_trim_memory();
  if (encoder) {
    clear_error(*encoder, stream);
  }
  auto sum = add(array(1.0f), array(2.0f), stream);
  if (sum.item<float>() != 3.0f) {
    throw std::runtime_error("the device does not add any more");
  }
}

} // namespace
} // namespace mlxrs

extern "C" int mlxrs_recover(const mlx_stream stream) {
  return mlxrs::guarded([&] {
    mlxrs::recover(mlx_stream_get_(stream));
  });
}
