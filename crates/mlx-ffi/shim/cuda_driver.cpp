#include "cuda_driver.h"
#include "replay.h"

#include <dlfcn.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "mlx_internals.h"

namespace mlxrs {

using namespace mlx::core;

const Cuda* cuda() {
  static const std::optional<Cuda> found = []() -> std::optional<Cuda> {
    if (!internals_are_known()) {
      return std::nullopt;
    }
    Cuda all{};
    auto find = [](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(RTLD_DEFAULT, name));
      return function != nullptr;
    };
    bool complete = find(all.capture, "cuStreamBeginCapture_v2") &&
        find(all.end_capture, "cuStreamEndCapture") &&
        find(all.exchange_capture_mode, "cuThreadExchangeStreamCaptureMode") && find(all.new_stream, "cuStreamCreate") &&
        find(all.free_stream, "cuStreamDestroy_v2") &&
        find(all.new_graph, "cuGraphCreate") && find(all.add_empty, "cuGraphAddEmptyNode") &&
        find(all.instantiate, "cuGraphInstantiateWithFlags") &&
        find(all.free_graph, "cuGraphDestroy") && find(all.free_executable, "cuGraphExecDestroy") &&
        find(all.run, "cuGraphLaunch") && find(all.launch, "cuLaunchKernelEx") &&
        find(all.copy, "cuMemcpyAsync") && find(all.load, "cuModuleLoadData") &&
        find(all.take, "cuMemAllocAsync") && find(all.let_go_async, "cuMemFreeAsync") &&
        find(all.let_go, "cuMemFree_v2") && find(all.upload, "cuMemcpyHtoDAsync_v2") &&
        find(all.download, "cuMemcpyDtoHAsync_v2") && find(all.take_of_host, "cuMemAllocHost_v2") &&
        find(all.count, "cuDeviceGetCount") && find(all.context_of, "cuStreamGetCtx") &&
        find(all.context, "cuCtxGetCurrent") && find(all.enter, "cuCtxSetCurrent") &&
        find(all.function, "cuModuleGetFunction") &&
        find(all.set, "cuFuncSetAttribute") && find(all.device, "cuCtxGetDevice") &&
        find(all.attribute, "cuDeviceGetAttribute") && find(all.new_event, "cuEventCreate") &&
        find(all.record, "cuEventRecord") && find(all.wait, "cuEventSynchronize") &&
        find(all.wait_for_stream, "cuStreamSynchronize") &&
        find(all.free_event, "cuEventDestroy_v2") && find(all.message, "cuGetErrorString") &&
        find(all.new_program, "nvrtcCreateProgram") &&
        find(all.free_program, "nvrtcDestroyProgram") && find(all.version, "nvrtcVersion") && find(all.name, "nvrtcAddNameExpression") &&
        find(all.compile, "nvrtcCompileProgram") && find(all.lowered, "nvrtcGetLoweredName") &&
        find(all.size, "nvrtcGetCUBINSize") && find(all.image, "nvrtcGetCUBIN") &&
        find(all.encoder, GET_ENCODER);
    find(all.ask, "nvrtcSetFlowCallback");
    find(all.capture_info, "cuStreamGetCaptureInfo_v2");
    find(all.change_kernel, "cuGraphExecKernelNodeSetParams_v2");
    return complete ? std::optional(all) : std::nullopt;
  }();
  return found ? &*found : nullptr;
}

void check(int result, const char* what) {
  if (result != 0) {
    const char* text = nullptr;
    cuda()->message(result, &text);
    throw std::runtime_error(std::string(what) + ": " + (text ? text : std::to_string(result).c_str()));
  }
}

Handle stream_of(Stream stream) {
  auto& c = *cuda();
  auto queue = stream_of_encoder(c.encoder(stream));
  static const bool are_several = [&] {
    int count = 0;
    return c.count(&count) == 0 && count > 1;
  }();
  // MLX looks at all devices of a host, and leaves the thread with another one than the stream's.
  if (are_several) {
    Handle own = nullptr, current = nullptr;
    check(c.context_of(queue, &own), "cuStreamGetCtx");
    check(c.context(&current), "cuCtxGetCurrent");
    if (own != current) {
      check(c.enter(own), "cuCtxSetCurrent");
    }
  }
  return queue;
}

namespace {

// A number of the device.
int attribute_of(int attribute) {
  int device, value;
  check(cuda()->device(&device), "cuCtxGetDevice");
  check(cuda()->attribute(&value, attribute, device), "cuDeviceGetAttribute");
  return value;
}

} // namespace

int compute_major() {
  return attribute_of(75);
}

int compute_minor() {
  return attribute_of(76);
}

} // namespace mlxrs

extern "C" void mlxrs_relax_captures(void) {
  constexpr int RELAXED = 2;
  if (auto* c = mlxrs::cuda()) {
    int mode = RELAXED;
    c->exchange_capture_mode(&mode);
  }
}

extern "C" int mlxrs_device_number(int attribute) {
  auto* c = mlxrs::cuda();
  int device = 0, devices = 0, number = 0;
  if (!c) {
    return 0;
  }
  // A thread that has not used one yet is told of the only one.
  bool is_known = c->device(&device) == 0 || (c->count(&devices) == 0 && devices == 1);
  return is_known && c->attribute(&number, attribute, device) == 0 ? number : 0;
}
