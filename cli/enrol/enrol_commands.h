// `atoll enrol`, `atoll token ...`, `atoll island revoke`, `atoll audit`: who
// may join, or read.

#pragma once

#include "base/flags/flags.h"
#include "cli/context.h"

namespace atl::cli {

void AddEnrol(flags::Command& app, Context& context);
void AddTokenCreate(flags::Command& app, Context& context);
void AddTokenList(flags::Command& app, Context& context);
void AddTokenRevoke(flags::Command& app, Context& context);
void AddIslandRevoke(flags::Command& app, Context& context);
void AddAudit(flags::Command& app, Context& context);

}  // namespace atl::cli
