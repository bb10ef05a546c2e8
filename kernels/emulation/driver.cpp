// A CUDA driver without a GPU: the functions of libcuda that candle and this project call, on host memory, with
// kernels that emulation runs. A program built for CUDA runs with it as it is: same binary, same calls.
//
// It is stricter than a driver. A call on a thread without a current context fails, and so does work on the default
// stream, which would not wait for the one that everything goes through; a kernel's pointers must lead into living
// allocations. Everything is done when its call returns, so errors of a missing wait do not show (docs/cuda.md).
//
// ATPM_EMULATED_MEMORY is the size of a device in bytes (8 GiB), ATPM_EMULATED_DEVICES their number (1),
// ATPM_EMULATED_LAUNCHES a file to which launches are appended as "count name" when the process ends. With
// ATPM_EMULATED_FAULT=N the Nth launch is a kernel that accesses what it may not: every later call fails.
#include "driver.h"

#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>

#include <cuda.h>

#include "emulation.h"
#include "launch.h"
#include "memory.h"

// The shared memory that sm_80 gives to a block: without being asked for, and at most.
static constexpr unsigned FREE_SHARED_BYTES = 48 * 1024;
static constexpr int MOST_SHARED_BYTES = 163 * 1024;

struct CUctx_st {
  int device;
};
struct CUstream_st {
  int device;
};
struct CUevent_st {
  std::chrono::steady_clock::time_point time;
};
struct CUmod_st {
  std::string name_before, name_after;  // how its text says that it defines a kernel
  std::string text;
};
struct CUfunc_st {
  std::string name;
  const emulation::Kernel *kernel = nullptr;
  emulation::GridKernel grid_kernel = nullptr;
  int allowed_shared_bytes = FREE_SHARED_BYTES;
};

namespace emulation {

std::recursive_mutex one_call;

void complain(const std::string &problem) { std::fprintf(stderr, "emulated driver: %s\n", problem.c_str()); }

namespace {

thread_local CUcontext current_context = nullptr;
bool initialised = false;
std::map<int, CUctx_st> contexts;
std::map<CUstream, std::unique_ptr<CUstream_st>> streams;
std::string running_kernel = "no kernel";

// Counts launches; its destructor runs when the process ends.
struct Launches {
  std::map<std::string, size_t> counts;
  size_t all = 0;
  ~Launches() {
    const char *path = std::getenv("ATPM_EMULATED_LAUNCHES");
    std::FILE *file = path ? std::fopen(path, "a") : nullptr;
    if (!file) return;
    for (const auto &[name, count] : counts) std::fprintf(file, "%zu %s\n", count, name.c_str());
    std::fclose(file);
  }
} launches;

CUresult fail(CUresult code, const std::string &problem) {
  complain(problem);
  return code;
}

int device_count() {
  const char *given = std::getenv("ATPM_EMULATED_DEVICES");
  return given ? std::atoi(given) : 1;
}

// Whether a kernel has failed. A GPU then does nothing more for this process, and says so at the next call or a later one.
bool is_lost() {
  static const char *const given = std::getenv("ATPM_EMULATED_FAULT");
  return given && launches.all >= std::strtoull(given, nullptr, 10);
}

void report_fault(const std::string &where) { complain(running_kernel + " accessed " + where); }

// `ENTRY.name(` in PTX text; a section of this name in a binary.
CUmod_st *read_module(const char *image) {
  constexpr uint32_t FATBIN = 0xba55ed50;
  struct Header {
    uint32_t magic;
    uint16_t version, header_bytes;
    uint64_t bytes;
  } header;
  std::memcpy(&header, image, sizeof header);
  if (header.magic == FATBIN) {
    const std::string text(image, header.header_bytes + header.bytes);
    return new CUmod_st{std::string(".text."), std::string(1, '\0'), text};
  }
  return new CUmod_st{".entry ", "(", image};
}

}  // namespace

bool context_is_current() { return current_context != nullptr; }

bool stream_is_valid(const void *stream) { return streams.count(static_cast<CUstream>(const_cast<void *>(stream))); }

}  // namespace emulation

using namespace emulation;

namespace {

// What most calls need: nobody else in the driver, and a current context.
struct Call {
  std::lock_guard<std::recursive_mutex> alone{one_call};
  CUresult outcome = CUDA_SUCCESS;
  explicit Call(const char *function) {
    if (!initialised)
      outcome = fail(CUDA_ERROR_NOT_INITIALIZED, std::string(function) + " before cuInit");
    else if (!context_is_current())
      outcome = fail(CUDA_ERROR_INVALID_CONTEXT, std::string(function) + " on a thread without a context");
    else if (is_lost())
      outcome = CUDA_ERROR_ILLEGAL_ADDRESS;
  }
  Call(const char *function, CUstream stream) : Call(function) {
    if (outcome == CUDA_SUCCESS && !stream_is_valid(stream))
      outcome = fail(CUDA_ERROR_INVALID_HANDLE, std::string(function) + " on the default stream, or on none");
  }
};
#define IN_CONTEXT()        \
  const Call call(__func__); \
  if (call.outcome != CUDA_SUCCESS) return call.outcome
#define ON_STREAM(STREAM)           \
  const Call call(__func__, STREAM); \
  if (call.outcome != CUDA_SUCCESS) return call.outcome

CUresult expect_memory(const char *function, CUdeviceptr address, size_t bytes) {
  if (memory::holds(address, bytes)) return CUDA_SUCCESS;
  return fail(CUDA_ERROR_INVALID_VALUE, std::string(function) + " of " + std::to_string(bytes) + " bytes at " +
                                            memory::describe(address));
}

void *host(CUdeviceptr address) { return reinterpret_cast<void *>(address); }

CUresult allocate(const char *function, CUdeviceptr *address, size_t bytes) {
  if (bytes == 0) return fail(CUDA_ERROR_INVALID_VALUE, std::string(function) + " of no bytes");
  *address = memory::allocate(bytes);
  return *address ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult release(CUdeviceptr address) {
  const std::string problem = memory::release(address);
  return problem.empty() ? CUDA_SUCCESS : fail(CUDA_ERROR_ILLEGAL_ADDRESS, problem);
}

}  // namespace

// The names that cuda.h redirects to: newer versions of a function have a suffix.
extern "C" {

CUresult cuInit(unsigned) {
  const std::lock_guard<std::recursive_mutex> alone(one_call);
  memory::on_fault(report_fault);
  initialised = true;
  return device_count() > 0 ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

CUresult cuDriverGetVersion(int *version) {
  *version = CUDA_VERSION;
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult code, const char **text) {
  static const std::map<int, const char *> names = {
      {CUDA_SUCCESS, "CUDA_SUCCESS"},
      {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"},
      {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
      {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED"},
      {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE"},
      {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE"},
      {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT"},
      {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE"},
      {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND"},
      {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS"},
  };
  const auto found = names.find(code);
  *text = found == names.end() ? "an error without a name here" : found->second;
  return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult code, const char **text) { return cuGetErrorName(code, text); }

CUresult cuDeviceGetCount(int *count) {
  *count = device_count();
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
  if (ordinal < 0 || ordinal >= device_count()) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int bytes, CUdevice) {
  std::snprintf(name, bytes, "emulation on a CPU");
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device) {
  std::memset(uuid, device + 1, sizeof *uuid);
  return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem(size_t *bytes, CUdevice) {
  *bytes = memory::capacity();
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice) {
  static const std::map<int, int> values = {
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 8},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
      {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1},
      {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 1},
      {CU_DEVICE_ATTRIBUTE_WARP_SIZE, LANES},
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, FREE_SHARED_BYTES},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, MOST_SHARED_BYTES},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 164 * 1024},
      {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1'000'000},
      {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 1'000'000},
      {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 64},
  };
  const auto found = values.find(attribute);
  if (found == values.end())
    return fail(CUDA_ERROR_INVALID_VALUE, "no value for device attribute " + std::to_string(attribute));
  *value = found->second;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  const std::lock_guard<std::recursive_mutex> alone(one_call);
  *context = &contexts.try_emplace(device, CUctx_st{device}).first->second;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice) { return CUDA_SUCCESS; }

CUresult cuCtxSetCurrent(CUcontext context) {
  current_context = context;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context) {
  *context = current_context;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device) {
  IN_CONTEXT();
  *device = current_context->device;
  return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize() {
  IN_CONTEXT();
  return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *stream, unsigned) {
  IN_CONTEXT();
  auto created = std::make_unique<CUstream_st>(CUstream_st{current_context->device});
  *stream = created.get();
  streams[*stream] = std::move(created);
  return CUDA_SUCCESS;
}

CUresult cuStreamDestroy(CUstream stream) {
  const std::lock_guard<std::recursive_mutex> alone(one_call);
  return streams.erase(stream) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuStreamSynchronize(CUstream stream) {
  ON_STREAM(stream);
  return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status) {
  ON_STREAM(stream);
  *status = CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent, unsigned) {
  ON_STREAM(stream);
  return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent *event, unsigned) {
  IN_CONTEXT();
  *event = new CUevent_st;
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent event) {
  delete event;
  return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
  ON_STREAM(stream);
  event->time = std::chrono::steady_clock::now();
  return CUDA_SUCCESS;
}

CUresult cuEventQuery(CUevent) { return CUDA_SUCCESS; }

CUresult cuEventSynchronize(CUevent) { return CUDA_SUCCESS; }

CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
  *milliseconds = std::chrono::duration<float, std::milli>(end->time - start->time).count();
  return CUDA_SUCCESS;
}

CUresult cuMemAlloc(CUdeviceptr *address, size_t bytes) {
  IN_CONTEXT();
  return allocate(__func__, address, bytes);
}

CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream) {
  ON_STREAM(stream);
  return allocate(__func__, address, bytes);
}

CUresult cuMemFree(CUdeviceptr address) {
  IN_CONTEXT();
  return release(address);
}

// Needs no context: the stream says where.
CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
  const std::lock_guard<std::recursive_mutex> alone(one_call);
  if (!stream_is_valid(stream)) return fail(CUDA_ERROR_INVALID_HANDLE, "memory freed on the default stream");
  if (is_lost()) return CUDA_ERROR_ILLEGAL_ADDRESS;
  return release(address);
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice) {
  *pool = nullptr;
  return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool, CUmemPool_attribute attribute, void *) {
  return attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemGetInfo(size_t *free, size_t *total) {
  IN_CONTEXT();
  *total = memory::capacity();
  *free = *total - memory::used();
  return CUDA_SUCCESS;
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
  ON_STREAM(stream);
  if (const CUresult problem = expect_memory(__func__, to, bytes)) return problem;
  std::memcpy(host(to), from, bytes);
  return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
  ON_STREAM(stream);
  if (const CUresult problem = expect_memory(__func__, from, bytes)) return problem;
  std::memcpy(to, host(from), bytes);
  return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  ON_STREAM(stream);
  if (const CUresult problem = expect_memory(__func__, to, bytes)) return problem;
  if (const CUresult problem = expect_memory(__func__, from, bytes)) return problem;
  std::memmove(host(to), host(from), bytes);
  return CUDA_SUCCESS;
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream) {
  ON_STREAM(stream);
  if (const CUresult problem = expect_memory(__func__, to, bytes)) return problem;
  std::memset(host(to), value, bytes);
  return CUDA_SUCCESS;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
  IN_CONTEXT();
  *module = read_module(static_cast<const char *>(image));
  return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule module) {
  const std::lock_guard<std::recursive_mutex> alone(one_call);
  delete module;
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
  IN_CONTEXT();
  if (module->text.find(module->name_before + name + module->name_after) == std::string::npos)
    return fail(CUDA_ERROR_NOT_FOUND, std::string("the module has no kernel ") + name);
  // One function an entry, which stays: attributes set through one handle hold for all.
  static std::map<std::pair<CUmodule, std::string>, CUfunc_st> functions;
  CUfunc_st &entry = functions[{module, name}];
  entry.name = name;
  const auto own = kernels().find(name);
  const auto foreign = candle_kernels().find(name);
  if (own != kernels().end())
    entry.kernel = &own->second;
  else if (foreign != candle_kernels().end())
    entry.grid_kernel = foreign->second;
  else
    return fail(CUDA_ERROR_NOT_FOUND, std::string("kernel ") + name + " is not emulated");
  *function = &entry;
  return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  IN_CONTEXT();
  if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
    return fail(CUDA_ERROR_INVALID_VALUE, "attribute " + std::to_string(attribute) + " of a function");
  if (value < 0 || value > MOST_SHARED_BYTES)
    return fail(CUDA_ERROR_INVALID_VALUE,
                std::to_string(value) + " bytes of shared memory for " + function->name + " are more than sm_80 has");
  function->allowed_shared_bytes = value;
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z,
                        unsigned threads_x, unsigned threads_y, unsigned threads_z, unsigned shared_bytes,
                        CUstream stream, void **arguments, void **extra) {
  ON_STREAM(stream);
  const dim3 blocks(blocks_x, blocks_y, blocks_z), threads(threads_x, threads_y, threads_z);
  const auto refuse = [function](const std::string &problem) {
    return fail(CUDA_ERROR_INVALID_VALUE, "launching " + function->name + ": " + problem);
  };
  if (extra) return refuse("arguments in the old form");
  if (blocks.x == 0 || blocks.y == 0 || blocks.z == 0) return refuse("a grid without blocks");
  if (blocks.x > 0x7fffffffu || blocks.y > 65535 || blocks.z > 65535) return refuse("the grid is too large");
  const uint64_t count = uint64_t{threads.x} * threads.y * threads.z;
  if (count == 0 || count > 1024 || threads.z > 64) return refuse(std::to_string(count) + " threads in a block");
  if (shared_bytes > static_cast<unsigned>(function->allowed_shared_bytes))
    return refuse(std::to_string(shared_bytes) + " bytes of shared memory, of which " +
                  std::to_string(function->allowed_shared_bytes) + " are allowed");
  ++launches.counts[function->name];
  if (++launches.all; is_lost()) return CUDA_SUCCESS;
  running_kernel = function->name;
  if (function->grid_kernel) {
    function->grid_kernel(arguments);
    return CUDA_SUCCESS;
  }
  const std::vector<std::string> &parameters = function->kernel->parameters;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].back() != '*') continue;
    const auto address = *static_cast<const CUdeviceptr *>(arguments[i]);
    if (address != 0 && !memory::holds(address, 0))
      return refuse("argument " + std::to_string(i) + " is " + memory::describe(address));
  }
  // Threads in another order every time, so that a result that depends on it differs between runs.
  ++schedule.seed;
  launch(blocks, threads, shared_bytes, [&] { function->kernel->call(arguments); });
  running_kernel = "no kernel";
  return CUDA_SUCCESS;
}

}  // extern "C"
