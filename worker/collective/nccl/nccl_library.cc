#include "worker/collective/nccl/nccl_library.h"

#include <nccl.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "base/status/status_macros.h"
#include "worker/engine/ops/cuda/shared_library.h"

namespace atl::collective {
namespace {

using ::atl::engine::cuda::SharedLibrary;

// The library's function behind ours.
template <auto* kOurs>
decltype(kOurs) theirs = nullptr;

absl::Status Open() {
  ASSIGN_OR_RETURN(
      const SharedLibrary library,
      SharedLibrary::Open(
          absl::StrCat("libnccl.so.", NCCL_MAJOR),
          absl::StrCat("NCCL ", NCCL_MAJOR, ".", NCCL_MINOR, ".", NCCL_PATCH)));
  decltype(&ncclGetVersion) get_version = nullptr;
  RETURN_IF_ERROR(library.Find("ncclGetVersion", get_version));
  int version = 0;
  if (get_version(&version) != ncclSuccess || version < NCCL_VERSION_CODE) {
    return library.Unusable(absl::StrCat("version ", version, " is older than ",
                                         NCCL_VERSION_CODE));
  }
#define ATL_FIND(name) RETURN_IF_ERROR(library.Find(#name, theirs<name>))
  ATL_FIND(ncclAllGather);
  ATL_FIND(ncclAllReduce);
  ATL_FIND(ncclBroadcast);
  ATL_FIND(ncclCommAbort);
  ATL_FIND(ncclCommDestroy);
  ATL_FIND(ncclCommFinalize);
  ATL_FIND(ncclCommGetAsyncError);
  ATL_FIND(ncclCommInitRankConfig);
  ATL_FIND(ncclCommSplit);
  ATL_FIND(ncclGetErrorString);
  ATL_FIND(ncclGetLastError);
  ATL_FIND(ncclGetUniqueId);
  ATL_FIND(ncclGroupEnd);
  ATL_FIND(ncclGroupStart);
  ATL_FIND(ncclRecv);
  ATL_FIND(ncclReduce);
  ATL_FIND(ncclReduceScatter);
  ATL_FIND(ncclSend);
#undef ATL_FIND
  return absl::OkStatus();
}

const absl::Status& Opened() {
  static const absl::Status status = Open();
  return status;
}

template <auto* kOurs, typename... A>
ncclResult_t Forward(A... arguments) {
  if (!Opened().ok()) return ncclSystemError;
  return theirs<kOurs>(arguments...);
}

}  // namespace

absl::Status CheckNccl() { return Opened(); }

}  // namespace atl::collective

using atl::collective::Forward;
using atl::collective::Opened;
using atl::collective::theirs;

const char* ncclGetErrorString(ncclResult_t result) {
  return Opened().ok() ? theirs<ncclGetErrorString>(result)
                       : "there is no usable NCCL";
}

const char* ncclGetLastError(ncclComm_t comm) {
  static const std::string why(Opened().message());
  return Opened().ok() ? theirs<ncclGetLastError>(comm) : why.c_str();
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  return Forward<ncclGetUniqueId>(id);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id,
                                    int rank, ncclConfig_t* config) {
  return Forward<ncclCommInitRankConfig>(comm, size, id, rank, config);
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key,
                           ncclComm_t* made, ncclConfig_t* config) {
  return Forward<ncclCommSplit>(comm, color, key, made, config);
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  return Forward<ncclCommFinalize>(comm);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  return Forward<ncclCommDestroy>(comm);
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  return Forward<ncclCommAbort>(comm);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  return Forward<ncclCommGetAsyncError>(comm, state);
}

ncclResult_t ncclGroupStart() { return Forward<ncclGroupStart>(); }

ncclResult_t ncclGroupEnd() { return Forward<ncclGroupEnd>(); }

ncclResult_t ncclBroadcast(const void* in, void* out, size_t count,
                           ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return Forward<ncclBroadcast>(in, out, count, type, root, comm, stream);
}

ncclResult_t ncclReduce(const void* in, void* out, size_t count,
                        ncclDataType_t type, ncclRedOp_t operation, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  return Forward<ncclReduce>(in, out, count, type, operation, root, comm,
                             stream);
}

ncclResult_t ncclAllReduce(const void* in, void* out, size_t count,
                           ncclDataType_t type, ncclRedOp_t operation,
                           ncclComm_t comm, cudaStream_t stream) {
  return Forward<ncclAllReduce>(in, out, count, type, operation, comm, stream);
}

ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count,
                               ncclDataType_t type, ncclRedOp_t operation,
                               ncclComm_t comm, cudaStream_t stream) {
  return Forward<ncclReduceScatter>(in, out, count, type, operation, comm,
                                    stream);
}

ncclResult_t ncclAllGather(const void* in, void* out, size_t count,
                           ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return Forward<ncclAllGather>(in, out, count, type, comm, stream);
}

ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type,
                      int peer, ncclComm_t comm, cudaStream_t stream) {
  return Forward<ncclSend>(data, count, type, peer, comm, stream);
}

ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return Forward<ncclRecv>(data, count, type, peer, comm, stream);
}
