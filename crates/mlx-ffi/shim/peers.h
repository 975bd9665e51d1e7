// Sums of ranks whose devices reach each other's memory: each writes into that of the others, and nothing else is asked.
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "cuda_driver.h"
#include "mlx/dtype.h"

namespace mlxrs {

// By what another process opens memory of a device. As CUDA's header declares it.
struct PeerHandle {
  char bytes[64];
};

// A rank's memory, and that of the others. It stays as long as the process lives: graphs refer to it.
class Peers {
 public:
  // Memory for sums of `size` ranks. `text` is the kernel's. Throws where CUDA refuses.
  Peers(int rank, int size, const char* text);
  Peers(const Peers&) = delete;

  PeerHandle handle() const;

  // Opens the memory of the others, by the handles of all ranks. Throws where this device does not reach it.
  void open(const std::vector<PeerHandle>& all);

  // Sums what is known beforehand, as all ranks do at the same time. Throws where it does not come out right, or in time: devices may
  // report access to each other that does not work.
  void try_out();

  // Whether so many bytes are summed in this way.
  bool sums(size_t bytes) const;

  // Sends a sum to a stream, which may be captured. `overlaps`: it may begin before what was sent before it has ended.
  void sum(Address from, Address to, size_t bytes, mlx::core::Dtype dtype, bool overlaps, Handle stream);

  // Lets what waits for other ranks end, with any values.
  void give_up();

 private:
  int rank_, size_;
  Address memory_{0};
  Address numbers_{0};
  int* is_given_up_{nullptr};
  long long capacity_;
  Handle function_;
  // What the kernel is told of the ranks: `Seen` of its text.
  std::vector<uint64_t> seen_;
};

} // namespace mlxrs
