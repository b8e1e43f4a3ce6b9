// Says hello: GOOS=wasip1 GOARCH=wasm go build -o hello-go.wasm hello.go
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Print("Content-Type: text/plain; charset=utf-8\n\n")
	fmt.Println("Hello from Go, in WebAssembly.")
	if name := os.Getenv("QUERY_STRING"); name != "" {
		fmt.Printf("You asked for %q.\n", name)
	}
}
