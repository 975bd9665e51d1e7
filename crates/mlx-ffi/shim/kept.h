// What the files about replays share: operations that are walked once and then repeated.
#pragma once
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "mlx/array.h"
#include "mlx/primitives.h"

namespace mlxrs {

// Something else than a replay can hold.
struct Foreign : std::exception {};

// Operations of ours over buffers that stay, whatever device repeats them.
class Kept {
 public:
  virtual ~Kept() = default;

  // Keeps the operations that make `output`. False where kernels are still compiled.
  bool record(
      const mlx::core::array& output,
      const std::vector<mlx::core::array>& moving,
      const std::vector<mlx::core::array>& fixed);

  // The output for other moving arrays; nothing where an array has another form or another place.
  std::optional<mlx::core::array> run(
      std::vector<mlx::core::array> moving,
      const std::vector<mlx::core::array>& fixed);

 protected:
  // An array as an operation finds it whenever it is repeated.
  struct Operand {
    uint64_t address;
    mlx::core::Dtype dtype;
    mlx::core::Shape shape;
    mlx::core::Strides strides;
  };

  struct Operation {
    std::shared_ptr<mlx::core::Primitive> primitive;
    std::vector<Operand> inputs;
    // Without the inputs that it writes into.
    std::vector<Operand> outputs;
  };

  // What there is to know of an operation.
  struct Known {
    bool is_ready;
    // The inputs that it writes into, which are its last outputs.
    std::vector<int> written;
  };

  // Throws where `a` is made by another operation than the device repeats.
  virtual Known known(const mlx::core::array& a) = 0;
  // Where an array that is evaluated lies.
  virtual uint64_t address(const mlx::core::array& a) const = 0;
  // In which an output that `a` is will lie.
  virtual mlx::core::Strides strides(const mlx::core::array& a) const = 0;
  virtual void keep(std::vector<Operation> operations) = 0;
  // Copies each moving array to the place of its own, then repeats the operations.
  virtual void send(std::vector<mlx::core::array> moving, const std::vector<uint64_t>& places) = 0;

  mlx::core::Stream stream() const {
    return stream_;
  }

 private:
  enum class Kind { Moving, Leaf, Made };

  // Where an array is: which moving one, which leaf, or an output of an operation.
  struct Place {
    Kind kind;
    size_t index;
    size_t output{0};
  };

  // An operation before its outputs have their places.
  struct Step {
    std::shared_ptr<mlx::core::Primitive> primitive;
    std::vector<Place> places;
    std::vector<Operand> inputs;
    std::vector<mlx::core::array> outputs;
  };

  struct Leaf {
    mlx::core::array of;
    uint64_t address;
  };

  Place visit(const mlx::core::array& a);
  size_t place_outputs(const Place& kept, std::vector<std::vector<size_t>>& offsets, size_t end) const;
  void build(const mlx::core::array& output);

  mlx::core::Stream stream_{0, mlx::core::Device::cpu};
  bool is_ready_{true};
  std::unordered_map<std::uintptr_t, Place> ids_;
  std::vector<Step> steps_;
  // As they were when the operations were kept.
  std::vector<mlx::core::array> moving_;
  std::vector<uint64_t> moving_places_;
  std::vector<Leaf> leaves_;
  std::vector<Leaf> fixed_;
  // Of the moving arrays and of all outputs.
  std::optional<mlx::core::array> buffer_;
  uint64_t first_{0};
  std::optional<mlx::core::array> output_;
};

std::unique_ptr<Kept> kept_on_cpu();
// Nothing where there is no CUDA.
std::unique_ptr<Kept> kept_on_cuda(bool overlap);

} // namespace mlxrs
