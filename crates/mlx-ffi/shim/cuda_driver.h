// CUDA's driver and compiler, which MLX's library brings along, without their headers.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

#include "mlx/stream.h"
#include "mlx_internals.h"

namespace mlxrs {

// As their headers declare it.
using Address = uint64_t;
using Handle = void*;

struct Attribute {
  int id;
  alignas(8) std::array<int, 16> value;
};

struct Config {
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  Handle stream;
  Attribute* attributes;
  unsigned count;
};

// A kernel of a graph.
struct NodeLaunch {
  Handle function;
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  void** arguments;
  void** extra;
  Handle kernel;
  Handle context;
};

struct Cuda {
  int (*capture)(Handle stream, int mode);
  int (*end_capture)(Handle stream, Handle* graph);
  int (*exchange_capture_mode)(int* mode);
  int (*new_stream)(Handle* stream, unsigned flags);
  int (*free_stream)(Handle stream);
  int (*new_graph)(Handle* graph, unsigned flags);
  int (*add_empty)(Handle* node, Handle graph, const Handle* dependencies, size_t count);
  int (*instantiate)(Handle* executable, Handle graph, unsigned long long flags);
  int (*free_graph)(Handle graph);
  int (*free_executable)(Handle executable);
  // What a stream is captured to, whose last operations are the dependencies of the next; and other arguments for a kernel of
  // a graph that is made. Absent before CUDA 12.
  int (*capture_info)(
      Handle stream,
      int* status,
      uint64_t* id,
      Handle* graph,
      const Handle** dependencies,
      size_t* count);
  int (*change_kernel)(Handle executable, Handle node, const NodeLaunch* launch);
  int (*run)(Handle executable, Handle stream);
  int (*launch)(const Config* config, Handle function, void** arguments, void** extra);
  int (*copy)(Address to, Address from, size_t bytes, Handle stream);
  int (*take)(Address* address, size_t bytes, Handle stream);
  int (*let_go_async)(Address address, Handle stream);
  int (*let_go)(Address address);
  int (*upload)(Address to, const void* from, size_t bytes, Handle stream);
  int (*download)(void* to, Address from, size_t bytes, Handle stream);
  // Memory of the host that the device copies to and from by itself.
  int (*take_of_host)(void** memory, size_t bytes);
  int (*count)(int* devices);
  int (*context_of)(Handle stream, Handle* context);
  int (*context)(Handle* context);
  int (*enter)(Handle context);
  int (*load)(Handle* module, const void* image);
  int (*function)(Handle* function, Handle module, const char* name);
  int (*set)(Handle function, int attribute, int value);
  int (*device)(int* device);
  int (*attribute)(int* value, int attribute, int device);
  int (*new_event)(Handle* event, unsigned flags);
  int (*record)(Handle event, Handle stream);
  int (*wait)(Handle event);
  int (*wait_for_stream)(Handle stream);
  int (*free_event)(Handle event);
  int (*message)(int error, const char** text);

  int (*new_program)(
      Handle* program,
      const char* text,
      const char* name,
      int headers,
      const char* const* header_texts,
      const char* const* header_names);
  int (*free_program)(Handle* program);
  int (*version)(int* major, int* minor);
  int (*name)(Handle program, const char* name);
  int (*compile)(Handle program, int count, const char* const* options);
  int (*lowered)(Handle program, const char* name, const char** lowered);
  int (*size)(Handle program, size_t* size);
  int (*image)(Handle program, char* image);
  // From CUDA 12.8 on: asks now and then whether to give up.
  int (*ask)(Handle program, int (*gives_up)(void* data, void*), void* data);

  // MLX's encoder of a stream.
  GetEncoder encoder;
};

// All of them, or nothing: an MLX without CUDA, or one whose internals are not known.
const Cuda* cuda();

// Throws where `result` is an error of the driver.
void check(int result, const char* what);

// CUDA's stream of one of MLX's.
Handle stream_of(mlx::core::Stream stream);

// The first number of the device's compute capability, and the second.
int compute_major();
int compute_minor();

} // namespace mlxrs
