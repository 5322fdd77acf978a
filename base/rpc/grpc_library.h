// Keeps gRPC's library running until the process ends.
//
// When the last channel or server of a process goes, gRPC stops its threads,
// and that takes up to ten seconds if one of them has just begun to poll. So
// the library is started once and never stopped: a program ends, and a test
// goes on, at once.
//
// And gRPC's mutexes are Abseil's, which look for deadlocks where it was built
// without NDEBUG, as Debian's is: each lock then goes through one graph of all
// locks of the process, under one spinlock. That is switched off. Our own
// mutexes are others (base/sync), and TSan looks at those.
//
// What gRPC logs goes to our log, at INFO whatever it thinks of it: what matters
// of it comes back as a status, too.

#ifndef BASE_RPC_GRPC_LIBRARY_H_
#define BASE_RPC_GRPC_LIBRARY_H_

namespace atl::rpc {

// To be called before the first channel or server is made. Thread-safe.
void KeepGrpcRunning();

}  // namespace atl::rpc

#endif  // BASE_RPC_GRPC_LIBRARY_H_
