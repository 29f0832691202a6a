"""What outgrows a function, as Spark jobs, and tables as DataFrames.

Rows travel through Spark as blocks of Arrow data which it does not look into: they are read,
sorted, merged and written by the code that the functions use.
"""
