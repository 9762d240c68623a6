# Prints points of three spirals, one a row: x,y,label.     awk -v seed=1 -v count=4000 -f points.awk >train.csv
BEGIN {
  srand(seed)
  for (i = 0; i < count; ++i) {
    radius = rand()
    angle = 4 * radius + 2.1 * (i % 3) + 0.3 * (rand() - 0.5)
    printf "%.4f,%.4f,%d\n", radius * cos(angle), radius * sin(angle), i % 3
  }
}
