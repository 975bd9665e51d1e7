#include "cuda_driver.h"

#include <dlfcn.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

#include "mlx/version.h"

namespace mlxrs {

using namespace mlx::core;

const Cuda* cuda() {
  static const std::optional<Cuda> found = []() -> std::optional<Cuda> {
    Cuda all{};
    auto find = [](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(RTLD_DEFAULT, name));
      return function != nullptr;
    };
    bool complete = find(all.capture, "cuStreamBeginCapture_v2") &&
        find(all.end_capture, "cuStreamEndCapture") && find(all.new_stream, "cuStreamCreate") &&
        find(all.free_stream, "cuStreamDestroy_v2") &&
        find(all.instantiate, "cuGraphInstantiateWithFlags") &&
        find(all.free_graph, "cuGraphDestroy") && find(all.free_executable, "cuGraphExecDestroy") &&
        find(all.run, "cuGraphLaunch") && find(all.launch, "cuLaunchKernelEx") &&
        find(all.copy, "cuMemcpyAsync") && find(all.load, "cuModuleLoadData") &&
        find(all.function, "cuModuleGetFunction") &&
        find(all.set, "cuFuncSetAttribute") && find(all.device, "cuCtxGetDevice") &&
        find(all.attribute, "cuDeviceGetAttribute") && find(all.new_event, "cuEventCreate") &&
        find(all.record, "cuEventRecord") && find(all.wait, "cuEventSynchronize") &&
        find(all.free_event, "cuEventDestroy_v2") && find(all.message, "cuGetErrorString") &&
        find(all.new_program, "nvrtcCreateProgram") &&
        find(all.free_program, "nvrtcDestroyProgram") && find(all.version, "nvrtcVersion") && find(all.name, "nvrtcAddNameExpression") &&
        find(all.compile, "nvrtcCompileProgram") && find(all.lowered, "nvrtcGetLoweredName") &&
        find(all.size, "nvrtcGetCUBINSize") && find(all.image, "nvrtcGetCUBIN") &&
        find(all.encoder, "_ZN3mlx4core2cu19get_command_encoderENS0_6StreamE");
    find(all.ask, "nvrtcSetFlowCallback");
    // What is known of the layout of MLX's classes is known of this one.
    complete = complete && std::string_view(mlx::core::version()) == "0.32.2";
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
  // How MLX's encoders begin.
  struct Encoder {
    Handle device;
    Handle stream;
  };
  return static_cast<Encoder*>(cuda()->encoder(stream))->stream;
}

Address address_of(const array& a) {
  // A buffer begins with the address.
  auto data = *static_cast<const Address*>(a.buffer().ptr());
  return data + a.offset();
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
