// What the parts of the emulated driver share.
#pragma once

#include <map>
#include <mutex>
#include <string>

namespace emulation {

// Held during every call: emulation keeps the running block in global variables.
extern std::recursive_mutex one_call;

// Whether the calling thread has a context, and whether this is a living stream.
bool context_is_current();
bool stream_is_valid(const void *stream);

// Says on standard error what a code alone would not tell.
void complain(const std::string &problem);

// A whole kernel as one function of its arguments.
using GridKernel = void (*)(const void *const *arguments);
// Those of candle's own kernels that a run needs.
const std::map<std::string, GridKernel> &candle_kernels();

}  // namespace emulation
