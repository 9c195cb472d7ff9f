#include <stdio.h>

/* Prints the first Fibonacci numbers. */
int main(int argc, char **argv) {
  unsigned long a = 0, b = 1;
  for (int k = 0; k < 20; ++k) {
    printf("%lu\n", a);
    unsigned long next = a + b;
    a = b;
    b = next;
  }
  return argc > 1 && argv[1][0] == 'x';
}
