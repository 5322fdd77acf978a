// `atoll enrol`, `atoll token ...`, `atoll island revoke`, `atoll audit`: who
// may join, or read.

#pragma once

#include "CLI/App.hpp"
#include "cli/context.h"

namespace atl::cli {

void AddEnrol(CLI::App& app, Context& context);
void AddTokenCreate(CLI::App& app, Context& context);
void AddTokenList(CLI::App& app, Context& context);
void AddTokenRevoke(CLI::App& app, Context& context);
void AddIslandRevoke(CLI::App& app, Context& context);
void AddAudit(CLI::App& app, Context& context);

}  // namespace atl::cli
