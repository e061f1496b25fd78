// Damage to a store's file, of every kind and in every region, as a bad disk or a stranger would do it: in
// place, under whoever has it open.
#pragma once

#include <random>
#include <string>

namespace quern {

// Flipped bits, garbage, zeros, pages that are swapped, a file that is cut; says what it did.
std::string damage_file(const std::string& path, std::mt19937& random);

}  // namespace quern
