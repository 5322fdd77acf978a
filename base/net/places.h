// Which connections of a port stay when there are too many.
//
// A connection begins as a stranger. It has a name once its peer has proven it.
// A new connection always gets a place: then one that has proven nothing goes
// first. Strangers have a part of all places; so has each address of theirs, and
// each network. A name has its own bound, wherever its connections come from,
// so that a fleet behind one address is not shut out.
//
// Pure. Thread-compatible.

#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"

namespace atl::net {

class Places {
 public:
  // Each at least 1.
  struct Limits {
    int count_max = 1024;            // >= 2.
    int stranger_max = 512;          // Strangers.
    int network_stranger_max = 128;  // Strangers of one /48 of IPv6.
    int address_stranger_max = 32;   // Strangers of one IPv4 address, or /64.
    int name_max = 256;              // Connections of one name.
  };
  // A connection's; later ones are greater.
  using Id = int64_t;

  explicit Places(const Limits& limits);

  struct Added {
    Id id = 0;
    std::string key;          // The address that it counts for.
    std::optional<Id> ended;  // Must be closed: it has no place any longer.
  };
  // Adds a stranger. `address_bytes` as of ToAddressBytes; empty: it counts by
  // itself.
  Added Add(absl::string_view address_bytes);

  // `id` belongs to `name`, which is not empty. Returns a connection that must
  // be closed, as Added::ended. Nothing if `id` is not here.
  std::optional<Id> Prove(Id id, const std::string& name);

  // Nothing if `id` is not here.
  void Remove(Id id);

  int count() const { return static_cast<int>(owners_.size()); }
  int stranger_count() const { return stranger_count_; }

 private:
  // The one that a connection counts for.
  struct Owner {
    bool is_stranger = true;
    std::string key;  // An address, or a name.
    bool operator==(const Owner&) const = default;
    template <typename H>
    friend H AbslHashValue(H h, const Owner& owner) {
      return H::combine(std::move(h), owner.is_stranger, owner.key);
    }
  };
  using ById = std::set<Id>;  // By age.

  void Insert(Id id, const Owner& owner);
  // The stranger that must go before one of `owner` comes.
  std::optional<Id> FindExcess(const Owner& owner) const;
  int CountOf(const Owner& owner) const;
  // The oldest connection of the network that has the most strangers, there of
  // the address that has the most.
  Id OldestStranger() const;
  // The oldest connection of the name that has the most.
  Id OldestOfAName() const;

  const Limits limits_;
  Id last_ = 0;
  int stranger_count_ = 0;
  absl::flat_hash_map<Id, Owner> owners_;
  absl::flat_hash_map<Owner, ById> connections_;
  absl::flat_hash_map<std::string, ById> networks_;  // Strangers'.
};

}  // namespace atl::net
