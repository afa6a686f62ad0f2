# Hierarchical Bayes for the multinomial logit (Rossi, Allenby & McCulloch, 2005): rhierMnlRwMixture of the package
# bayesm, one normal component, its default priors. Called by hierarchical_bayes.py:
#
#   Rscript hierarchical_bayes.R FOLDER PEOPLE NEW OPTIONS ATTRIBUTES DRAWS KEEP SEED
#
# In FOLDER, little-endian: counts.bin (int32, answers of each person, those of the NEW ones last and possibly 0),
# chosen.bin (int32, from 1), options.bin (float64, attribute after attribute, option after option, question after
# question). Written: new.bin (float64, draws of each new person's taste, draw after draw, attribute after attribute,
# person after person).

if (!requireNamespace("bayesm", quietly = TRUE)) {
  message("the R package bayesm is not installed")
  quit(status = 3)
}
arguments <- commandArgs(trailingOnly = TRUE)
folder <- arguments[1]
numbers <- as.integer(arguments[-1])
people <- numbers[1]; new <- numbers[2]; size <- numbers[3]; width <- numbers[4]
draws <- numbers[5]; keep <- numbers[6]; seed <- numbers[7]

read <- function(name, what, bytes) {
  path <- file.path(folder, name)
  readBin(path, what, n = file.size(path) / bytes, size = bytes, endian = "little")
}
counts <- read("counts.bin", "integer", 4)
chosen <- read("chosen.bin", "integer", 4)
options <- matrix(read("options.bin", "numeric", 8), ncol = width, byrow = TRUE)

data <- list()
place <- rep(NA, people)  # of a person among those with answers
first <- 0
for (person in seq_len(people)) {
  count <- counts[person]
  if (count > 0) {
    rows <- first * size + seq_len(count * size)
    data[[length(data) + 1]] <- list(y = chosen[first + seq_len(count)], X = options[rows, , drop = FALSE])
    place[person] <- length(data)
  }
  first <- first + count
}

set.seed(seed)
fit <- bayesm::rhierMnlRwMixture(
  Data = list(p = size, lgtdata = data), Prior = list(ncomp = 1), Mcmc = list(R = draws, keep = keep, nprint = 0)
)
kept <- dim(fit$betadraw)[3]
used <- seq.int(kept %/% 2 + 1, kept)  # the first half is discarded

result <- array(0, dim = c(length(used), width, new))
for (number in seq_len(new)) {
  person <- people - new + number
  if (is.na(place[person])) {  # nothing is known about the person but the population
    for (draw in seq_along(used)) {
      part <- fit$nmix$compdraw[[used[draw]]][[1]]
      result[draw, , number] <- part$mu + backsolve(part$rooti, rnorm(width), transpose = TRUE)
    }
  } else {
    result[, , number] <- t(matrix(fit$betadraw[place[person], , used], nrow = width))
  }
}
writeBin(as.vector(result), file.path(folder, "new.bin"), size = 8, endian = "little")
