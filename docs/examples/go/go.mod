module example.com/readings

go 1.23
