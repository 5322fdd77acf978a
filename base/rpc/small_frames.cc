#include "base/rpc/small_frames.h"

#include <dlfcn.h>

#include <atomic>

#include "absl/status/status.h"
#include "base/obs/log.h"
#include "grpc/slice_buffer.h"
#include "grpcpp/version_info.h"

#if GRPC_CPP_VERSION_MAJOR == 1 && GRPC_CPP_VERSION_MINOR == 51

// gRPC's own types, which only its functions know.
struct grpc_chttp2_transport;
struct grpc_chttp2_stream;

namespace {

constexpr char kAddName[] = "grpc_slice_buffer_add";
constexpr char kParseName[] =
    "_Z29grpc_chttp2_data_parser_parsePvP21grpc_chttp2_transport"
    "P18grpc_chttp2_streamRK10grpc_slicei";
using Add = void (*)(grpc_slice_buffer*, grpc_slice);
using Parse = absl::Status (*)(void*, grpc_chttp2_transport*,
                               grpc_chttp2_stream*, const grpc_slice&, int);

// gRPC's function of this name, which one of this file replaces.
template <typename Function>
Function Replaced(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

std::atomic<bool> is_on = false;
// gRPC takes in a frame, and next adds its bytes to its stream's buffer.
thread_local bool is_adding_frame = false;
thread_local bool is_small = false;  // The frame is one too many.

}  // namespace

extern "C" void grpc_slice_buffer_add(grpc_slice_buffer* buffer,
                                      grpc_slice slice) {
  static const Add add = Replaced<Add>(kAddName);
  add(buffer, slice);
  if (!is_adding_frame) return;
  is_adding_frame = false;  // Later ones may concern other buffers.
  is_small = atl::rpc::HasSmallSlices(*buffer);
}

// As in gRPC 1.51, whose errors are statuses. One without gRPC's payloads ends
// the connection.
absl::Status grpc_chttp2_data_parser_parse(void* parser,
                                           grpc_chttp2_transport* transport,
                                           grpc_chttp2_stream* stream,
                                           const grpc_slice& slice,
                                           int is_last) {
  static const Parse parse = Replaced<Parse>(kParseName);
  is_small = false;
  is_adding_frame = is_on.load(std::memory_order_relaxed);
  absl::Status status = parse(parser, transport, stream, slice, is_last);
  is_adding_frame = false;
  if (!is_small || !status.ok()) return status;
  LOG(WARNING) << "a peer sends messages in frames of a few bytes: its "
               << "connection is ended";
  return absl::ResourceExhaustedError("frames of a few bytes");
}

#endif

namespace atl::rpc {

bool HasSmallSlices(const grpc_slice_buffer& unread) {
  return unread.count > kSlicesFree &&
         unread.length / kSliceBytesMin < unread.count;
}

void EndSmallFrames() {
#if GRPC_CPP_VERSION_MAJOR == 1 && GRPC_CPP_VERSION_MINOR == 51
  if (is_on.exchange(true) || Replaced<Parse>(kParseName) != nullptr) return;
#endif
  LOG(WARNING) << "this gRPC is not the known one: a peer may take memory with "
               << "frames of a few bytes";
}

}  // namespace atl::rpc
