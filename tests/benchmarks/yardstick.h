// The yardstick: a minimal parameter server.
//
// Raw TCP sockets on loopback, one server with one thread, f32 on the wire, no
// checksum, no durability, no fault tolerance. In a round the server receives
// chunk by chunk from every island and takes the mean and the Nesterov step
// while the chunk is in cache. Then it broadcasts the parameters. Islands send
// and receive at the same time.

#pragma once

#include <cstddef>
#include <string>

namespace atl::benchmarks {

// Serves until it is killed: prints its port as a line, then accepts
// `island_count` islands. "logged" vectors go into files in `directory`.
// Returns the process's exit status.
int RunYardstickServer(int island_count, size_t element_count,
                       const std::string& directory);

// Follows orders on standard input:
//   "go V"       plays round V; answers "done"
//   "raw V"      only sends the vector; the server discards it, with one thread
//                per island; answers "done"
//   "checked V"  raw, with the minimal work of our server: a CRC-32C per chunk
//                at both ends, and a check of every value
//   "logged V"   checked, and writes the vector to a file without a sync; the
//                next time overwrites it
//   "check V"    answers "ok", or the fault after V rounds
int RunYardstickIsland(int index, int island_count, size_t element_count,
                       int port);

}  // namespace atl::benchmarks
