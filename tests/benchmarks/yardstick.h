// The yardstick: the least that a parameter server can be.
//
// Raw TCP sockets on loopback, one server with one thread, f32 on the wire, no
// checksum, nothing durable, no failure survived. A round: all islands start;
// chunk by chunk the server receives from each, takes the mean and the Nesterov
// step while the chunk is in cache; then it broadcasts the parameters. Islands
// send and receive at once.

#pragma once

#include <cstddef>
#include <string>

namespace atl::benchmarks {

// Serves until it is killed: prints its port as a line, then accepts
// `island_count` islands. What is "logged" goes into files in `directory`.
// Returns the process's exit status.
int RunYardstickServer(int island_count, size_t element_count,
                       const std::string& directory);

// Follows orders on standard input: "go V" plays round V and answers "done";
// "raw V" only sends the vector, which the server throws away (a thread an
// island), and answers "done"; "checked V" the same with what any server of ours
// has to do: a CRC-32C a chunk at both ends, and a look at every value; "logged
// V" puts what has come into a file too, which is not synced, and is written
// over the next time; "check V" answers "ok", or what is wrong after V rounds.
int RunYardstickIsland(int index, int island_count, size_t element_count,
                       int port);

}  // namespace atl::benchmarks
