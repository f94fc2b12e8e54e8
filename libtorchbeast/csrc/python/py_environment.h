// Python environments behind the server's Environment.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "server/environment_batch.h"

namespace torchbeast {

// An environment made by calling `env_init`. Environments follow Gymnasium
// (reset() -> observation, info; step() -> observation, reward, terminated, truncated, info) or the
// older gym (reset() -> observation; step() -> observation, reward, done, info).
// `info["game_over"]`, where present, says whether the full game ended with the episode. Takes
// the GIL.
std::unique_ptr<Environment> MakePythonEnvironment(nanobind::handle env_init);

}  // namespace torchbeast
